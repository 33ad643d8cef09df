import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import type { TestOrganization } from '../support/service.ts';
import { Parity } from './parity.ts';
import { openElsewhere, plainRequest, RawClient } from './raw-client.ts';

const ONE = { sql: 'select 1 as one' };
const SLEEP = { sql: 'select pg_sleep(60)' };

let parity: Parity;
beforeAll(async () => {
  parity = await Parity.start({
    POSTERN_BACKENDS_PER_TENANT: '2',
    POSTERN_QUEUE_TIMEOUT_MS: '5000',
    POSTERN_HTTP_REQUESTS_PER_TENANT: '4',
    POSTERN_TRUST_PROXY: '127.0.0.0/8',
  });
});
afterAll(() => parity.close());

/** A connection that the fast path serves, and one that it does not. */
async function openBoth() {
  return { fast: await RawClient.open(parity.port), elsewhere: await openElsewhere(parity.port) };
}

describe('who asks is told on the fast path as elsewhere', () => {
  it.each<[header: string, sourceIp: string]>([
    ['X-Forwarded-For: 198.51.100.7', '198.51.100.7'],
    ['X-Forwarded-For:198.51.100.7,127.0.0.9', '198.51.100.7'],
    ['x-forwarded-for:  203.0.113.9, 198.51.100.7:4711  ', '198.51.100.7'],
    ['X-FORWARDED-FOR: [2001:db8::1]:443', '2001:db8::1'],
    ['X-Forwarded-For: nobody', '127.0.0.1'],
    ['X-Forwarded-For:', '127.0.0.1'],
  ])('%s', async (header, sourceIp) => {
    await parity.expectSame(parity.asking(ONE, { header }), 200);
    expect(parity.service.observations.findLast(({ name }) => name === 'http.request')).toMatchObject({ origin: { sourceIp } });
  });

  it.each<[name: string, header: string, isPlain: boolean]>([
    ['usual', 'User-Agent: tester/1 (X; "Y")', true],
    ['absent', 'Accept: */*', true],
    ['empty', 'user-agent:', true],
    ['longer than is kept', `User-Agent: ${'x'.repeat(600)}`, true],
    ['padded', 'User-Agent:   padded  twice  ', true],
    ['padded with tabs', 'User-Agent: \t padded\ttwice \t ', false],
    ['in Latin-1', 'User-Agent: caf\xe9 \x80\xff', false],
    ['in UTF-8', 'User-Agent: \xc3\xa4\xe2\x82\xac', false],
    ['sent twice', 'User-Agent: a\r\nUser-Agent: b', false],
  ])('a user agent that is %s', (_name, header, isPlain) => parity.expectSame(parity.asking(ONE, { header }), 200, isPlain));

  it.each(['a b', '', 'x'.repeat(129), '<b>', ' ', 'a/b'])('the request id "%s", which is replaced', async (id) => {
    for (const client of Object.values(await openBoth())) {
      const { status, headers } = await client.ask(plainRequest(parity.acme.apiKey, ONE, `X-Request-Id: ${id}`));
      expect([status, headers['x-request-id']]).toEqual([200, expect.stringMatching(/^[0-9a-f-]{36}$/)]);
      client.socket.destroy();
    }
  });
});

describe('who may not ask is refused on the fast path as elsewhere', () => {
  it.each([
    ['is nobody', 'pst_nobody'],
    ['has no form', 'x'],
    ['is too long', 'x'.repeat(5_000)],
  ])('with a key that %s', (_name, key) => parity.expectSame(parity.asking(ONE, { key }), 401));

  it.each([
    ['no key', (request: string) => request.replace(/Authorization: .*\r\n/, '')],
    ['a password', (request: string) => request.replace(/Bearer .*/, 'Basic YTpi')],
    ['half a key', (request: string) => request.replace(/Bearer .*/, 'Bearer a b')],
  ])('with %s', (_name, change) => parity.expectSame((id) => change(parity.asking(ONE)(id)), 401));

  const rotateKey = (other: TestOrganization) => parity.service.call('POST', '/api/auth/rotate-key', { key: other.apiKey, body: {} });
  const suspend = (other: TestOrganization) =>
    parity.service.service.router.catalog.organizations.setStatus(other.id, 'suspended', { surface: 'admin', sourceIp: '127.0.0.1' });

  it.each<[what: string, change: (other: TestOrganization) => Promise<unknown>, status: number]>([
    ['a key was rotated', rotateKey, 401],
    ['an organization was suspended', suspend, 403],
  ])('once %s, on connections that were open before', async (_what, change, status) => {
    const other = await parity.service.signUp();
    const { fast, elsewhere } = await openBoth();
    const ask = parity.asking(ONE, { key: other.apiKey });
    expect(await parity.outcomeOf(fast, ask)).toMatchObject({ reply: { status: 200 } });
    await change(other);
    const refused = await parity.outcomeOf(fast, ask);
    expect(refused).toMatchObject({ reply: { status } });
    expect(refused).toEqual(await parity.outcomeOf(elsewhere, ask));
    for (const { socket } of [fast, elsewhere]) socket.destroy();
  });

  it.each<[what: string, change: (other: TestOrganization) => Promise<unknown>]>([
    ['a key was rotated', rotateKey],
    ['an organization was suspended', suspend],
  ])('whose query was running when %s', async (_what, change) => {
    const other = await parity.service.signUp();
    const { fast, elsewhere } = await openBoth();
    const ask = parity.asking(SLEEP, { key: other.apiKey });
    const outcomes = Promise.all([parity.outcomeOf(fast, ask), parity.outcomeOf(elsewhere, ask)]);
    await eventually('both are at work', async () => (await sessions('leased')) === 2);
    await change(other);
    const [onFastPath, notInLane] = await outcomes;
    expect(onFastPath).toEqual(notInLane);
    for (const { socket } of [fast, elsewhere]) socket.destroy();
  });
});

describe('where there are too many', () => {
  it('all are counted together, and refused on the fast path as elsewhere', async () => {
    const crowd = [await openBoth(), await openBoth()].flatMap(({ fast, elsewhere }) => [fast, elsewhere]);
    const sleep = (client: RawClient) => client.send(plainRequest(parity.acme.apiKey, SLEEP));
    crowd.slice(0, 2).forEach(sleep);
    await eventually('two are at work', async () => (await sessions('leased')) === 2);
    crowd.slice(2).forEach(sleep);
    await eventually('two wait', async () => /^postern_lease_waiters 2$/m.test(await metrics()));
    await parity.expectSame(parity.asking(ONE), 429);
    // Those who wait find no session.
    const late = await Promise.all(crowd.slice(2).map((client) => client.reply()));
    expect(late.map(({ status, body }) => [status, JSON.parse(body).code])).toEqual([503, 503].map((status) => [status, 'pool_timeout']));
    await parity.expectSame(parity.asking(ONE), 503);
    for (const { socket } of crowd) socket.destroy();
    await eventually('they have gone', async () => (await sessions('leased')) === 0);
    await parity.expectSame(parity.asking(ONE), 200);
  });
});

async function metrics(): Promise<string> {
  return (await fetch(`${parity.service.opsUrl}/metrics`)).text();
}

async function sessions(state: string): Promise<number> {
  return Number(new RegExp(`^postern_backends\\{state="${state}"\\} (\\d+)$`, 'm').exec(await metrics())?.[1] ?? 0);
}
