import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { FastPath } from '../../http/fast-path/connection.ts';
import { throttleRefusal } from '../../http/problems.ts';
import { generateApiKey } from '../../src/auth/tokens.ts';
import { ServiceError } from '../../src/errors.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient, type RawReply } from './raw-client.ts';

const PER_MINUTE = 4;
const portOf = ({ httpUrl }: TestService) => Number(new URL(httpUrl).port);

/** A request, and what is in its head. */
function request(line: string, ...headers: readonly string[]): string {
  return [`${line} HTTP/1.1`, 'Host: localhost', 'X-Request-Id: the-id', ...headers, '', ''].join('\r\n');
}

const bearer = (key: string) => `Authorization: Bearer ${key}`;

describe('a request that needs a key, or goes nowhere', () => {
  let service: TestService;
  const unknown = generateApiKey();
  beforeAll(async () => {
    service = await startTestService();
    // From now on it is known that there is none.
    await service.call('GET', '/api/auth/me', { key: unknown });
  });
  afterAll(() => service.close());

  const withoutDate = ({ status, headers: { Date: _date, ...headers }, body }: RawReply) => ({ status, headers, body });

  it.each([
    ['a query without a key', plainRequest('x', { sql: 'SELECT 1' }).replace(/Authorization: .*\r\n/, 'X-Request-Id: the-id\r\n'), 401],
    ['a query with what is no key', plainRequest('pst_x', { sql: 'SELECT 1' }, 'X-Request-Id: the-id'), 401],
    ['without a key', request('GET /api/auth/me'), 401],
    ['with what is no bearer token', request('GET /api/audit?limit=3', 'Authorization: Basic YTpi'), 401],
    ['with what is no key', request('GET /api/audit/verify', bearer('pst_x')), 401],
    ['with a key that there is not', request('GET /api/auth/me', bearer(unknown)), 401],
    ['with a body', `${request('POST /api/transaction', 'Content-Length: 2')}{}`, 401],
    ['at no path', request('GET /wp-login.php?x=1', 'User-Agent: scanner/1', 'Accept: */*'), 404],
    ['at a path with a slash too many', request('POST /api/query/'), 404],
    ['at no path, with a key', request('DELETE /api/nothing', bearer(unknown)), 404],
  ])('is refused in the fast path as elsewhere: %s', async (_, bytes, status) => {
    const elsewhere = await openElsewhere(portOf(service));
    const leave = vi.spyOn(FastPath.prototype, 'leave');
    const client = await RawClient.open(portOf(service));
    // Again and again on one connection.
    const [reply, again] = [await client.ask(bytes), await client.ask(bytes)];
    expect(leave).not.toHaveBeenCalled();
    leave.mockRestore();
    expect(withoutDate(reply)).toEqual(withoutDate(await elsewhere.ask(bytes)));
    expect([withoutDate(again), reply.status]).toEqual([withoutDate(reply), status]);
    for (const { socket } of [client, elsewhere]) socket.destroy();
  });

  it.each([
    ['another method', request('DELETE /api/query'), 405],
    ['a path that may stand for another', request('POST /api/%71uery', 'Content-Length: 0'), 401],
    ['a path without a key', request('GET /healthz'), 200],
    ['the whole URI', request('GET http://localhost/nowhere'), 404],
    ['no body', request('HEAD /nowhere'), 404],
    ['to be closed', request('GET /nowhere', 'Connection: close'), 404],
  ])('is left to the server: %s', async (_, bytes, status) => {
    const leave = vi.spyOn(FastPath.prototype, 'leave');
    const client = await RawClient.open(portOf(service));
    client.send(bytes);
    await expect.poll(() => leave.mock.calls.length).toBe(1);
    leave.mockRestore();
    client.socket.end();
    expect((await client.rest).toString()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  });
});

describe('an address that has been refused too often', () => {
  let service: TestService;
  let acme: TestOrganization;
  let address = 0;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_REFUSALS_PER_MINUTE: String(PER_MINUTE), POSTERN_TRUST_PROXY: '127.0.0.0/8' });
    acme = await service.signUp();
  });
  afterAll(() => service.close());

  /** From an address that nobody has called from. */
  function newAddress(): string {
    address += 1;
    return `X-Forwarded-For: 192.0.2.${address}`;
  }

  const query = (key: string, from: string) => plainRequest(key, { sql: 'SELECT 1 AS one' }, from);

  it.each([
    ['at the fast path', (from: string) => request('GET /api/auth/me', from), 401],
    ['at the fast path, with keys that have to be looked up', (from: string) => query(generateApiKey(), from), 401],
    ['elsewhere', (from: string) => request('GET /nowhere', from, 'TE: trailers', 'Expect:'), 404],
    ['before any route', (from: string) => request(`GET /api/queries/${'a'.repeat(14_000)}`, from), 404],
    ['at the Neon door', (from: string) => request('POST /sql', from, 'Content-Length: 0'), 400],
  ])('gets 429 after a second, and its connection is closed, %s', async (_, ask, status) => {
    const from = newAddress();
    const client = await RawClient.open(portOf(service));
    const statuses: number[] = [];
    for (let n = 0; n < PER_MINUTE; n++) statuses.push((await client.ask(ask(from))).status);
    expect(statuses).toEqual(Array(PER_MINUTE).fill(status));
    const since = performance.now();
    client.send(ask(from));
    const { replies, whole } = await client.replies();
    expect(performance.now() - since).toBeGreaterThan(990);
    expect([replies.map((reply) => reply.status), whole]).toEqual([[ask(from).includes('/sql') ? 400 : 429], true]);
    expect(replies[0]?.body).toContain('too many requests without a valid API key have come from this address');
    if (replies[0]?.status === 429) expect(Number(replies[0].headers['retry-after'])).toBeGreaterThan(0);
  });

  it('may ask with its key for names that are too long for any', async () => {
    const from = newAddress();
    const client = await RawClient.open(portOf(service));
    expect((await client.ask(query(acme.apiKey, from))).status).toBe(200);
    const statuses: number[] = [];
    for (let n = 0; n <= PER_MINUTE; n++) {
      statuses.push((await client.ask(request(`GET /api/queries/${'a'.repeat(1_001)}`, from, bearer(acme.apiKey)))).status);
    }
    expect(statuses).toEqual(Array(PER_MINUTE + 1).fill(404));
    client.socket.destroy();
  });

  it('counts a request that makes the service fail, and none that it cannot answer at the moment', () => {
    const counted: string[] = [];
    const call = { origin: { surface: 'http', sourceIp: '192.0.2.250' }, tenant: undefined } as const;
    const counter = { count: (sourceIp: string) => void counted.push(sourceIp) };
    void throttleRefusal(new Error('a fault'), call, counter);
    expect(counted).toEqual(['192.0.2.250']);
    void throttleRefusal(new ServiceError('not_ready', 'starting'), call, counter);
    expect(counted).toHaveLength(1);
  });

  it('still gets what it has a valid key for, at once and at both doors', async () => {
    const from = newAddress();
    const stranger = await RawClient.open(portOf(service));
    for (let n = 0; n < PER_MINUTE; n++) await stranger.ask(request('GET /nowhere', from));
    stranger.send(request('GET /nowhere', from));
    const other = await RawClient.open(portOf(service));
    expect((await other.ask(query(acme.apiKey, from))).status).toBe(200);
    expect((await other.ask(request('GET /api/auth/me', from, bearer(acme.apiKey)))).status).toBe(200);
    expect((await other.ask(request('GET /healthz', from))).status).toBe(200);
    other.socket.destroy();
    expect((await stranger.replies()).replies.map(({ status }) => status)).toEqual([429]);
  });

  it('is slowly refused at the wire door, where a valid key logs in at once', async () => {
    const wrong = () => expect(service.connect({ ...acme, id: 'org_000000000000' })).rejects.toMatchObject({ code: '28P01' });
    for (let n = 0; n < PER_MINUTE; n++) await wrong();
    const since = performance.now();
    const slow = wrong();
    // What is held back would take longer each time, on any machine.
    await eventually('a valid key logs in before it could be held back', async () => {
      const from = performance.now();
      const client = await service.connect(acme);
      expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
      await client.end();
      return performance.now() - from < 990;
    });
    await slow;
    expect(performance.now() - since).toBeGreaterThan(990);
  });
});
