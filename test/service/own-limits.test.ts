import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NO_LIMITS, type OrganizationLimits } from '../../src/catalog/limits.ts';
import { plainRequest, RawClient } from '../http/raw-client.ts';
import { eventually } from '../support/eventually.ts';
import { untilServerRuns } from '../support/running.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/* What an operator sets for one organization, while the service runs and its clients are connected. */

let service: TestService;
let acme: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_CLIENTS_PER_TENANT: '4', POSTERN_HTTP_REQUESTS_PER_TENANT: '3' });
});
afterAll(() => service.close());
beforeEach(async () => {
  [acme, other] = [await service.signUp('Acme'), await service.signUp('Other')];
});

const set = (limits: Partial<OrganizationLimits>) =>
  service.service.operator.setLimits(acme.id, limits, { surface: 'admin', sourceIp: '127.0.0.1' });

const me = ({ apiKey: key }: TestOrganization) => service.call('GET', '/api/auth/me', { key });

async function connect(count: number): Promise<pg.Client[]> {
  const clients: pg.Client[] = [];
  while (clients.length < count) clients.push(await service.connect(acme));
  return clients;
}

describe('the number of sessions', () => {
  const FULL = { severity: 'FATAL', code: '53300' };

  it('is less or more than that of others at the wire door, and those that are there stay', async () => {
    await set({ sessions: 2 });
    const clients = await connect(2);
    await expect(service.connect(acme)).rejects.toMatchObject({ ...FULL, message: `too many connections for organization "${acme.id}"` });
    await set({ sessions: 6 });
    clients.push(...(await connect(4)));
    await expect(service.connect(acme)).rejects.toMatchObject(FULL);
    await set({ sessions: 1 });
    for (const client of clients) expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await Promise.all(clients.slice(1).map((client) => client.end()));
    await expect(service.connect(acme)).rejects.toMatchObject(FULL);
    await set({ sessions: null });
    const [again] = await connect(1);
    await Promise.all([clients[0]?.end(), again?.end()]);
    await (await service.connect(other)).end();
  });

  it('is no more than that over HTTP, and no more than that of others', async () => {
    await set({ sessions: 1 });
    const statement = `SELECT pg_sleep(60) AS "${acme.id}"`;
    const abort = new AbortController();
    const slow = fetch(`${service.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ sql: statement }),
      signal: abort.signal,
    });
    slow.catch(() => {});
    await untilServerRuns(statement);
    const refused = await me(acme);
    expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_requests', detail: expect.stringContaining('may have: 1') } });
    await set({ sessions: 100 });
    expect((await me(acme)).body.limits).toMatchObject({ maxRequests: 3, maxClientConnections: 100 });
    abort.abort();
    await expect(slow).rejects.toThrow();
  });
});

describe('the length of a statement', () => {
  it('is limited at both doors, also in sessions that were open before, and may be set again', async () => {
    const [client] = await connect(1);
    expect((await client?.query('SELECT pg_sleep(0.3)'))?.rowCount).toBe(1);
    await set({ statementMs: 200 });
    await expect(client?.query('SELECT pg_sleep(60)')).rejects.toMatchObject({ code: '57014' });
    expect(await service.query(acme, 'SELECT pg_sleep(60)')).toMatchObject({ status: 504, body: { code: 'statement_timeout' } });
    const asked = await service.call('POST', '/api/query', { key: acme.apiKey, body: { sql: 'SELECT 1', timeoutMs: 201 } });
    expect(asked).toMatchObject({ status: 400, body: { message: 'timeoutMs: must be a whole number from 1 to 200' } });
    expect((await me(acme)).body.limits).toMatchObject({
      statementTimeoutMs: 200,
      maxStatementTimeoutMs: 200,
      wireStatementTimeoutMs: 200,
    });
    expect((await service.query(other, 'SELECT pg_sleep(0.5)')).status).toBe(200);

    await set({ statementMs: null });
    expect((await client?.query('SELECT pg_sleep(0.5)'))?.rowCount).toBe(1);
    expect((await me(acme)).body.limits).toMatchObject({ maxStatementTimeoutMs: 300_000, wireStatementTimeoutMs: null });
    await client?.end();
  });
});

describe('requests in a second', () => {
  const FORM = /^"requests";r=(\d+);t=1$/;
  const left = (header: string | null | undefined) => Number(FORM.exec(header ?? '')?.[1] ?? Number.NaN);

  it('are said to be left in every reply over HTTP, from the fast path and from other routes', async () => {
    const raw = await RawClient.open(Number(new URL(service.httpUrl).port));
    const ask = () => raw.ask(plainRequest(acme.apiKey, { sql: 'SELECT 1' }));
    expect((await ask()).headers).not.toHaveProperty('ratelimit');
    await set({ requestsPerSecond: 50 });
    const [quick, slow] = [await ask(), await me(acme)];
    expect(quick).toMatchObject({ status: 200, headers: { 'ratelimit-policy': '"requests";q=100;w=2' } });
    expect(slow.headers.get('ratelimit-policy')).toBe('"requests";q=100;w=2');
    expect(left(quick.headers.ratelimit)).toBe(99);
    expect(left(slow.headers.get('ratelimit'))).toBeLessThan(100);
    expect(slow.body.limits.maxRequestsPerSecond).toBe(50);
    const headers = { 'neon-connection-string': `postgres://${acme.id}:${acme.apiKey}@nowhere.test/${acme.id}` };
    const body = JSON.stringify({ query: 'SELECT 1', params: [] });
    expect(left((await fetch(`${service.httpUrl}/sql`, { method: 'POST', headers, body })).headers.get('ratelimit'))).toBeLessThan(100);
    expect((await me(other)).headers.has('ratelimit')).toBe(false);

    await set(NO_LIMITS);
    expect((await ask()).headers).not.toHaveProperty('ratelimit-policy');
    expect((await me(acme)).body.limits.maxRequestsPerSecond).toBeNull();
    raw.socket.destroy();
  });

  it('are refused beyond it, and allowed again in time', async () => {
    await set({ requestsPerSecond: 1 });
    const [raw, startedAt] = [await RawClient.open(Number(new URL(service.httpUrl).port)), performance.now()];
    const statuses: number[] = [];
    while (!statuses.includes(429)) {
      const { status } = statuses.length % 2 === 0 ? await raw.ask(plainRequest(acme.apiKey, { sql: 'SELECT 1' })) : await me(acme);
      statuses.push(status);
    }
    const elapsedS = (performance.now() - startedAt) / 1_000;
    const served = statuses.filter((status) => status === 200).length;
    expect(served).toBeGreaterThanOrEqual(10);
    expect(served).toBeLessThanOrEqual(11 + elapsedS);

    // Each refusal is an answer of its own, on either path.
    const refused = async () => {
      const replies = [];
      for (;;) {
        const quick = await raw.ask(plainRequest(acme.apiKey, { sql: 'SELECT 1' }));
        const slow = await me(acme);
        replies.push(quick.status, slow.status);
        if (quick.status === 429 && slow.status === 429) return [quick, slow] as const;
      }
    };
    const [quick, slow] = await refused();
    expect(quick.headers).toMatchObject({
      'retry-after': '1',
      'ratelimit-policy': '"requests";q=10;w=10',
      ratelimit: '"requests";r=0;t=1',
    });
    expect(JSON.parse(quick.body)).toMatchObject({ code: 'rate_limited', retryable: true });
    expect([slow.headers.get('retry-after'), slow.headers.get('ratelimit')]).toEqual(['1', '"requests";r=0;t=1']);
    expect((await me(other)).status).toBe(200);
    const wire = await service.connect(acme);
    expect((await wire.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await wire.end();

    await eventually('there is one more', async () => (await me(acme)).status === 200);
    await set({ requestsPerSecond: 1_000 });
    expect((await me(acme)).headers.get('ratelimit-policy')).toBe('"requests";q=2000;w=2');
    raw.socket.destroy();
  });
});
