import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createWebSocketStream, WebSocket } from 'ws';
import { type OperatorSession, openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { LoginThrottle } from '../../src/router/authenticator.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { passwordMessage, readReply, startupPacket } from './entrances.ts';

const WRONG_KEY = `pst_${'0'.repeat(36)}`;
const MAX_FAILURES = 10;

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let variables: Record<string, string>;
  let service: TestService;
  let operating: OperatorSession;
  beforeAll(async () => {
    // WebSockets may say from where they come.
    variables = { ...testVariables(), POSTERN_PLACEMENT: kind, POSTERN_TRUST_PROXY: '127.0.0.1' };
    service = await startTestService(variables);
    operating = await openOperator(readConfig(variables));
  });
  afterAll(async () => {
    await operating.close();
    await service.close();
  });

  /** @returns the SQLSTATE at the TCP port, where it is always 127.0.0.1 that calls */
  const byTcp = (user: string, password: string): Promise<string> =>
    service.connect({ id: user, apiKey: password, orgName: '', email: '' }).then(
      (client) => client.end().then(() => '00000'),
      ({ code }: { code: string }) => code,
    );

  /** @returns the SQLSTATE over a WebSocket that was passed on for an address */
  async function byWebSocket(user: string, key: string, address: string, at = service): Promise<string> {
    const socket = new WebSocket(`${at.httpUrl.replace('http:', 'ws:')}/v2`, { headers: { 'x-forwarded-for': address } });
    await once(socket, 'open');
    const client = WireClient.over(createWebSocketStream(socket));
    await client.write(Buffer.concat([startupPacket([['user', user]]), passwordMessage(key)]));
    const { sqlstate } = await readReply(client);
    client.disconnect();
    return sqlstate;
  }

  async function bySql(user: string, key: string, address: string): Promise<string> {
    const headers = { 'x-forwarded-for': address, 'neon-connection-string': `postgres://${user}:${key}@db/${user}` };
    const { status, body } = await service.call('POST', '/sql', { headers, body: { query: 'SELECT 1', params: [] } });
    return status === 200 ? '00000' : body.code;
  }

  describe('ten failed logins to one organization from one address', () => {
    let attacked: TestOrganization;
    let other: TestOrganization;
    beforeAll(async () => {
      [attacked, other] = [await service.signUp(), await service.signUp()];
      for (let failures = 0; failures < MAX_FAILURES; failures += 1) expect(await byTcp(attacked.id, WRONG_KEY)).toBe('28P01');
    });

    it('are the last from there for a while that are told so, by whatever door', async () => {
      expect(await byTcp(attacked.id, WRONG_KEY)).toBe('28000');
      expect(await byWebSocket(attacked.id, WRONG_KEY, '127.0.0.1')).toBe('28000');
      expect(await bySql(attacked.id, WRONG_KEY, '127.0.0.1')).toBe('28000');
    });

    it('do not keep out who has the right key, by whatever door: it may come from the same balancer', async () => {
      expect(await byTcp(attacked.id, attacked.apiKey)).toBe('00000');
      expect(await byWebSocket(attacked.id, attacked.apiKey, '127.0.0.1')).toBe('00000');
      expect(await bySql(attacked.id, attacked.apiKey, '127.0.0.1')).toBe('00000');
      expect(await byTcp(attacked.id, WRONG_KEY)).toBe('28000');
    });

    it('do not concern other addresses, other organizations, and the key by itself', async () => {
      expect(await byWebSocket(attacked.id, attacked.apiKey, '192.0.2.1')).toBe('00000');
      expect(await bySql(attacked.id, attacked.apiKey, '192.0.2.1')).toBe('00000');
      expect(await byTcp(other.id, other.apiKey)).toBe('00000');
      expect((await service.query(attacked, 'SELECT 1')).status).toBe(200);
    });

    it('count for an organization that is not there as well, so that nobody learns which there are', async () => {
      for (let failures = 0; failures < MAX_FAILURES; failures += 1) expect(await byTcp('org_000000000000', WRONG_KEY)).toBe('28P01');
      expect(await byTcp('org_000000000000', WRONG_KEY)).toBe('28000');
    });

    it('count together from all doors, and from each address by itself', async () => {
      for (let failures = 0; failures < MAX_FAILURES / 2; failures += 1) {
        expect(await byWebSocket(other.id, WRONG_KEY, '192.0.2.2')).toBe('28P01');
        expect(await bySql(other.id, WRONG_KEY, '192.0.2.2')).toBe('28P01');
      }
      expect(await bySql(other.id, WRONG_KEY, '192.0.2.2')).toBe('28000');
      expect(await bySql(other.id, WRONG_KEY, '192.0.2.3')).toBe('28P01');
    });

    it('are not escaped by making addresses up', async () => {
      const untrusting = await startTestService({ POSTERN_PLACEMENT: kind });
      const { id, apiKey } = await untrusting.signUp();
      const from = (n: number) => `192.0.2.${n}`;
      for (let n = 0; n < MAX_FAILURES; n += 1) expect(await byWebSocket(id, WRONG_KEY, from(n), untrusting)).toBe('28P01');
      expect(await byWebSocket(id, WRONG_KEY, from(99), untrusting)).toBe('28000');
      expect(await byWebSocket(id, apiKey, from(99), untrusting)).toBe('00000');
      await untrusting.close();
    });
  });

  describe('who has no right key does not learn whether there is such an organization', () => {
    /** Candidates for the same refusal. */
    const strangers: Record<string, string> = {};
    let dead: { readonly dropped: string; readonly rotated: string };
    /** Whose key was rotated. */
    let active: TestOrganization;
    beforeAll(async () => {
      active = await service.signUp();
      const [suspended, dropped] = [await service.signUp(), await service.signUp()];
      await operating.operator.suspend(suspended.id, operating.origin);
      await operating.operator.drop(dropped.id, operating.origin);
      const rotated = await service.call('POST', '/api/auth/rotate-key', { key: active.apiKey });
      expect(rotated.status).toBe(200);
      dead = { dropped: dropped.apiKey, rotated: active.apiKey };
      await eventually('the drop is known', async () => (await service.query(dropped, 'SELECT 1')).status === 401);
      Object.assign(strangers, {
        active: active.id,
        suspended: suspended.id,
        dropped: dropped.id,
        unknown: 'org_zzzzzzzzzzzz',
        nonsense: 'nobody',
      });
    });

    /** What the server says to a login with a proof that is none; the time it took in milliseconds. */
    async function refusal(user: string): Promise<{ said: string[]; salt: string; tookMs: number }> {
      const client = await WireClient.open('127.0.0.1', service.wirePort);
      const startedAt = performance.now();
      await client.write(startupPacket([['user', user]]));
      const said: string[] = [];
      const hear = async () => {
        const message = await client.read();
        const text = typeof message === 'object' ? `${message.type} ${message.body.toString('latin1')}` : `${message}`;
        said.push(text);
        return text;
      };
      await hear();
      await client.write(encodeFrontend('SASLInitialResponse SCRAM-SHA-256 n,,n=,r=abcdefghijklmnopqrstuvwx'));
      const [, nonce = '', salt = ''] = /r=([^,]+),s=([^,]+),/.exec(await hear()) ?? [];
      await client.write(encodeFrontend(`SASLResponse c=biws,r=${nonce},p=${Buffer.alloc(32).toString('base64')}`));
      await hear();
      await hear();
      client.disconnect();
      return { said: said.map((text) => withoutSecrets(text, [nonce, salt, user])), salt, tookMs: performance.now() - startedAt };
    }

    it('by what the wire door says', async () => {
      const expected = (await refusal('org_yyyyyyyyyyyy')).said;
      expect(expected.map((text) => text[0])).toEqual(['R', 'R', 'E', 'E']);
      expect(expected[2]).toContain('\0C28P01\0Mpassword authentication failed for user "…"\0');
      for (const [what, user] of Object.entries(strangers)) expect([what, (await refusal(user)).said]).toEqual([what, expected]);
    });

    it('by the salt, which stays for a while whether it is a real one or not, and is different for each', async () => {
      const salts = new Set<string>();
      for (const user of Object.values(strangers)) {
        const { salt } = await refusal(user);
        expect((await refusal(user)).salt).toBe(salt);
        expect(Buffer.from(salt, 'base64')).toHaveLength(16);
        salts.add(salt);
      }
      expect(salts.size).toBe(Object.keys(strangers).length);
    });

    it('by the time it takes', async () => {
      const quickestMs = new Map<string, number>();
      // Otherwise each of them could be tried a few times only, before the failures are too many.
      const failed = vi.spyOn(LoginThrottle.prototype, 'failed').mockReturnValue('');
      onTestFinished(() => failed.mockRestore());
      const measure = async () => {
        for (let round = 1; round < MAX_FAILURES; round += 1) {
          for (const [what, user] of Object.entries(strangers)) {
            const { said, tookMs } = await refusal(user);
            expect(said[2]).toContain('C28P01');
            quickestMs.set(what, Math.min(quickestMs.get(what) ?? tookMs, tookMs));
          }
        }
      };
      // The quickest is what it takes when nothing else on the machine is in the way: work that is done for some of them is
      // in all of theirs, and what is not such work has gone from it after enough of them.
      await eventually('the quickest are alike', async () => {
        await measure();
        const times = [...quickestMs.values()];
        return Math.max(...times) - Math.min(...times) < 2;
      });
    });

    it('and a former key tells nothing about others, and to nobody else', async () => {
      const rotated = /^this API key was rotated at \d{4}-\d\d-\d\dT[\d:.]+Z$/;
      // The failures before count in processes that were there then.
      const another = await startTestService(variables);
      onTestFinished(() => another.close());
      const { body } = await another.call('GET', '/api/auth/me', { key: dead.rotated });
      expect(body).toMatchObject({ status: 401, code: 'unauthorized', detail: expect.stringMatching(rotated) });
      const said = (user: string) =>
        another.connect({ ...active, id: user, apiKey: dead.rotated }).then(
          () => 'welcome',
          ({ message }: Error) => message,
        );
      expect(await said(active.id)).toMatch(rotated);
      for (const user of [strangers.suspended, strangers.dropped, strangers.unknown]) {
        expect(await said(`${user}`)).toBe(`password authentication failed for user "${user}"`);
      }
    });

    it('by what the HTTP door says to a key that is none any more, or never was', async () => {
      const { body: expected } = await service.call('GET', '/api/auth/me', { key: WRONG_KEY });
      for (const key of [dead.dropped, 'x', strangers.active]) {
        const { status, body } = await service.call('GET', '/api/auth/me', key === undefined ? {} : { key });
        expect([status, { ...body, requestId: '' }]).toEqual([401, { ...expected, requestId: '' }]);
      }
    });
  });
});

function withoutSecrets(text: string, secrets: readonly string[]): string {
  return secrets.filter((secret) => secret !== '').reduce((rest, secret) => rest.replaceAll(secret, '…'), text);
}
