import { once } from 'node:events';
import { describe, expect, inject, it } from 'vitest';
import { BackendConnection } from '../../../src/backend/connection.ts';
import { type HostAddress, type HostSession, inUse, ServerHosts, type SessionTarget } from '../../../src/backend/server-hosts.ts';
import { parseUrl } from '../../../src/placement/admin-connection.ts';
import { eventually } from '../../support/eventually.ts';

type State = 'primary' | 'standby' | 'down';

/** Hosts whose servers are what the test says, and the order in which they were asked. */
function makeHosts(states: Record<string, State>, target: SessionTarget) {
  const asked: string[] = [];
  const open = async ({ host }: HostAddress): Promise<HostSession> => {
    asked.push(host);
    const state = () => {
      if (states[host] === 'down') throw new Error(`${host} is down`);
      return states[host];
    };
    state();
    return { isStandby: async () => state() === 'standby', close() {} };
  };
  const [first = '', ...others] = Object.keys(states);
  const at = (host: string): HostAddress => ({ host, port: 5432 });
  return { hosts: new ServerHosts([at(first), ...others.map(at)], target, open), asked };
}

describe('the hosts of a server', () => {
  it.each([
    ['read-write', { a: 'standby', b: 'primary', c: 'primary' }, 'b', ['a', 'b']],
    ['primary', { a: 'down', b: 'standby', c: 'primary' }, 'c', ['a', 'b', 'c']],
    ['any', { a: 'standby', b: 'primary' }, 'a', ['a']],
    ['any', { a: 'down', b: 'standby' }, 'b', ['a', 'b']],
  ] as const)('are tried in their order: %s of %o', async (target, states, used, order) => {
    const { hosts, asked } = makeHosts(states, target);
    await hosts.seek();
    expect(hosts.current.host).toBe(used);
    expect(asked).toEqual(order);
    asked.splice(0);
    // The last good one comes first from now on.
    await hosts.seek();
    expect(asked).toEqual([used]);
    await hosts.find();
    expect(asked).toEqual([used]);
  });

  it('may all be of no use', async () => {
    const { hosts } = makeHosts({ a: 'down', b: 'primary' }, 'any');
    await hosts.find();
    expect(hosts.current.host).toBe('b');
    await expect(makeHosts({ a: 'primary', b: 'down' }, 'any').hosts.seek()).resolves.toBeUndefined();
    await expect(makeHosts({ a: 'down', b: 'down' }, 'any').hosts.seek()).rejects.toThrow('b is down');
    await expect(makeHosts({ a: 'down', b: 'standby' }, 'primary').hosts.seek()).rejects.toMatchObject({ code: '57P03' });
  });

  it('stay with one until another may be used, and then drop its connections', async () => {
    const states: Record<string, State> = { a: 'primary', b: 'standby' };
    const { hosts, asked } = makeHosts(states, 'primary');
    const moves: string[] = [];
    const end = hosts.watch((from, to) => moves.push(`${from.host} ${to.host}`));
    const former = hosts.socket();
    const closed = once(former, 'close');
    states.a = 'down';
    await eventually('the other has been asked', () => asked.includes('b'));
    expect([hosts.current.host, former.destroyed, moves]).toEqual(['a', false, []]);

    states.b = 'primary';
    states.a = 'standby';
    await closed;
    expect([hosts.current.host, moves]).toEqual(['b', ['a b']]);
    // A former primary that is back does not matter.
    states.a = 'primary';
    await end();
    expect(hosts.current.host).toBe('b');
    expect(inUse({ host: 'a', port: 5432, hosts })).toMatchObject({ host: 'b', port: 5432 });
    expect(inUse({ host: 'worker', port: 5432, hosts })).toMatchObject({ host: 'worker' });
  });

  it('know of a connection until it is closed', async () => {
    const { hosts, ...login } = parseUrl(inject('clusterUrl').replace(/@([^/]+)\//, '@$1,$1/'));
    const backend = await BackendConnection.open({ ...login, hosts, database: 'postgres', connectTimeoutMs: 60_000 });
    expect(hosts?.connections).toBe(1);
    backend.end();
    await backend.gone;
    expect(hosts?.connections).toBe(0);
  });

  it('let no session begin at a standby unless any will do', () => {
    expect(() => makeHosts({ a: 'primary' }, 'read-write').hosts.check('on')).toThrow('the server is a standby');
    for (const [target, reported] of [
      ['any', 'on'],
      ['primary', 'off'],
      ['primary', undefined],
    ] as const)
      makeHosts({ a: 'primary' }, target).hosts.check(reported);
  });
});
