import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FastPath } from '../../http/fast-path/connection.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { plainRequest, RawClient } from './raw-client.ts';

let service: TestService;
let acme: TestOrganization;
let other: TestOrganization;

async function start(variables: Readonly<Record<string, string>>): Promise<void> {
  service = await startTestService(variables);
  [acme, other] = await Promise.all([service.signUp('Acme'), service.signUp('Other')]);
}

afterEach(() => service.close());

const query = ({ apiKey: key }: TestOrganization, body: object) => service.call('POST', '/api/query', { key, body });

/** A request whose body is still to come. The service has begun to look at it. */
async function begin({ apiKey }: TestOrganization): Promise<Socket> {
  const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.write(
    `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n`,
  );
  const [answer] = await once(socket, 'data');
  expect(String(answer)).toBe('HTTP/1.1 100 Continue\r\n\r\n');
  return socket;
}

describe('requests under way at once', () => {
  const TOO_MANY = { status: 429, body: { code: 'too_many_requests', sqlstate: '53300', retryable: true } };

  it('are limited for each organization, before their bodies are read', async () => {
    await start({ POSTERN_HTTP_REQUESTS_PER_TENANT: '3' });
    expect((await query(acme, { sql: 'select 1' })).status).toBe(200);
    const crowd = await Promise.all([begin(acme), begin(acme), begin(acme)]);
    const refused = await query(acme, { sql: 'select 1' });
    expect(refused).toMatchObject(TOO_MANY);
    expect(refused.body.message).toBe('the organization has as many requests under way as it may have: 3');
    expect(refused.headers.get('retry-after')).toBe('1');
    expect((await service.call('GET', '/api/auth/me', { key: acme.apiKey })).status).toBe(429);
    expect(await query(other, { sql: 'select 1' })).toMatchObject({ status: 200 });
    for (const socket of crowd) socket.destroy();
    await eventually('the crowd has gone', async () => (await query(acme, { sql: 'select 1' })).status === 200);
  });

  it('leave room when they end, whatever their end', async () => {
    await start({ POSTERN_HTTP_REQUESTS_PER_TENANT: '1' });
    for (const sql of ['select 1', 'select 1/0', "select repeat('x', 200000)", 'selec', '']) {
      expect((await query(acme, { sql })).status).not.toBe(429);
    }
    expect((await service.call('POST', '/api/query', { key: acme.apiKey, body: '{' })).status).toBe(400);
  });

  it('wait for a session one behind the other, and those of others do not wait behind them', async () => {
    await start({ POSTERN_BACKENDS_MAX: '4', POSTERN_BACKENDS_PER_TENANT: '3' });
    const holder = await service.connect(acme);
    await holder.query('begin; select pg_advisory_xact_lock(1)');
    const answered = vi.fn();
    const waiting = Array.from({ length: 24 }, () => query(acme, { sql: 'select pg_advisory_xact_lock_shared(1)' }).then(answered));
    await eventually('all sessions are taken', async () => (await sessions('leased')) >= 3);
    expect((await query(other, { sql: 'select 1' })).status).toBe(200);
    expect(answered).not.toHaveBeenCalled();
    await holder.query('commit');
    await Promise.all(waiting);
    expect(answered.mock.calls).toEqual(Array.from({ length: 24 }, () => [expect.objectContaining({ status: 200 })]));
    await holder.end();
  });
});

/** From the metrics. */
async function sessions(state: string): Promise<number> {
  const text = await (await fetch(`${service.opsUrl}/metrics`)).text();
  return Number(new RegExp(`^postern_backends\\{state="${state}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
}

describe('the size of a body', () => {
  beforeEach(() => start({ POSTERN_HTTP_BODY_MAX_BYTES: '2000' }));

  it('is limited', async () => {
    const sql = (length: number) => `select ${' '.repeat(length - '{"sql":"select 1"}'.length)}1`;
    expect(await query(acme, { sql: sql(2_000) })).toMatchObject({ status: 200 });
    expect(await query(acme, { sql: sql(2_001) })).toMatchObject({
      status: 413,
      body: { code: 'payload_too_large', message: 'the request body is larger than 2000 bytes' },
    });
  });
});

describe('the time that a statement may take', () => {
  it.each(['0', '5000'])('is at most the most that a request may ask for, on both endpoints, also where %s ms are usual', async (usual) => {
    await start({ POSTERN_STATEMENT_TIMEOUT_MS: usual, POSTERN_STATEMENT_TIMEOUT_MAX_MS: '200' });
    const sql = 'select pg_sleep(1)';
    expect(await query(acme, { sql })).toMatchObject({ status: 504, body: { sqlstate: '57014' } });
    const headers = { 'neon-connection-string': `postgres://${acme.id}:${acme.apiKey}@nowhere.test/${acme.id}` };
    const reply = await fetch(`${service.httpUrl}/sql`, { method: 'POST', headers, body: JSON.stringify({ query: sql, params: [] }) });
    expect(await reply.json()).toMatchObject({ code: '57014' });
  });

  it('is what the request says, up to what the service allows', async () => {
    await start({ POSTERN_STATEMENT_TIMEOUT_MS: '200', POSTERN_STATEMENT_TIMEOUT_MAX_MS: '20000' });
    const refused = { status: 400, body: { code: 'invalid_request', message: 'timeoutMs: must be a whole number from 1 to 20000' } };
    const timedOut = { status: 504, body: { code: 'statement_timeout', sqlstate: '57014', retryable: false } };
    expect(await query(acme, { sql: 'select pg_sleep(0.3)', timeoutMs: 20_001 })).toMatchObject(refused);
    expect(await query(acme, { sql: 'select pg_sleep(0.3)', timeoutMs: 20_000 })).toMatchObject({ status: 200 });
    expect(await query(acme, { sql: 'select pg_sleep(60)' })).toMatchObject(timedOut);
    // Each of them would be in time, but not all together.
    const transaction = { statements: Array.from({ length: 200 }, () => ({ sql: 'select pg_sleep(0.1)' })) };
    expect(await service.call('POST', '/api/transaction', { key: acme.apiKey, body: transaction })).toMatchObject(timedOut);
    const migration = { name: 'slow', sql: 'select pg_sleep(60)' };
    expect(await service.call('POST', '/api/migrations', { key: acme.apiKey, body: migration })).toMatchObject(timedOut);
    expect((await service.call('GET', '/api/auth/me', { key: acme.apiKey })).body.limits).toMatchObject({
      statementTimeoutMs: 200,
      maxStatementTimeoutMs: 20_000,
      maxBodyBytes: 16_777_216,
      maxBodiesBytes: 67_108_864,
      maxBodyValues: 1_000_000,
      maxRequests: 256,
    });
  });
});

describe('the time for a request to arrive', () => {
  it('is limited as a whole', async () => {
    const timeoutMs = 1_500;
    await start({ POSTERN_HTTP_HEADERS_TIMEOUT_MS: '1000', POSTERN_HTTP_REQUEST_TIMEOUT_MS: String(timeoutMs) });
    const since = performance.now();
    const socket = await begin(acme);
    let reply = '';
    for await (const chunk of socket) reply += chunk;
    expect(reply).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n/);
    expect(JSON.parse(reply.split('\r\n\r\n')[1] ?? '')).toMatchObject({ code: 'request_timeout', retryable: true });
    expect(performance.now() - since).toBeGreaterThan(timeoutMs);
  });
});

describe('of values and statements', () => {
  beforeEach(() => start({}));

  it('65,535 parameters can be sent', async () => {
    const params = Array.from({ length: 65_535 }, () => 1);
    const sql = `select cardinality(array[${params.map((_, index) => `$${index + 1}::int`).join()}]) as count`;
    expect((await query(acme, { sql, params })).body.rows).toEqual([{ count: 65_535 }]);
  });

  it.each([65_536, 65_540])('a statement that wants %i of them is refused as what it is', async (wanted) => {
    const sql = `select cardinality(array[${Array.from({ length: wanted }, (_, index) => `$${index + 1}::int`).join()}])`;
    for (const [given, message] of [
      [65_535, `the statement takes ${wanted} parameters, but params has 65535`],
      [wanted % 65_536, `the statement takes ${wanted} parameters, but params has ${wanted % 65_536}`],
    ] as const) {
      const params = Array.from({ length: given }, () => 1);
      expect(await query(acme, { sql, params })).toMatchObject({ status: 400, body: { code: 'invalid_request', message } });
      const body = { statements: [{ sql, params }] };
      expect(await service.call('POST', '/api/transaction', { key: acme.apiKey, body })).toMatchObject({ status: 400, body: { message } });
    }
  });
});

it('requests without all of their bodies take no more memory than there is for them', async () => {
  await start({});
  expect((await query(acme, { sql: 'select 1' })).status).toBe(200);
  const port = Number(new URL(service.httpUrl).port);
  const tried = vi.spyOn(MemoryReservation.prototype, 'tryResize');
  const leave = vi.spyOn(FastPath.prototype, 'leave');
  const bytes = plainRequest(acme.apiKey, { sql: `select 1${' '.repeat(60_000)}` });
  const reserved = () =>
    tried.mock.results.filter((_, n) => tried.mock.calls[n]?.[0] === bytes.length).map(({ value }) => value === undefined);
  const half = async () => {
    const client = await RawClient.open(port);
    client.send(bytes.slice(0, 400));
    return client;
  };
  // An organization has no more of it than is left.
  const crowd = await Promise.all(Array.from({ length: Math.floor((8 * 1_048_576) / bytes.length) }, half));
  await eventually('all are waited for', () => reserved().length === crowd.length);
  const late = await half();
  // Where it counts as its organization's before the rest has come.
  await eventually('it is served elsewhere', () => leave.mock.calls.length === 1);
  expect(await late.ask(bytes.slice(400))).toMatchObject({ status: 200 });
  expect(reserved()).toEqual([...crowd.map(() => true), false]);
  expect(leave).toHaveBeenCalledTimes(1);
  const [first, ...others] = crowd;
  for (let n = 0; n < 3; n += 1) expect(await first?.ask(n === 0 ? bytes.slice(400) : bytes)).toMatchObject({ status: 200 });
  for (const { socket } of [...others, late]) socket.destroy();
  await eventually('there is room', async () => {
    const client = await half();
    const isWaitedFor = reserved().at(-1) === true;
    client.socket.destroy();
    return isWaitedFor;
  });
  first?.socket.destroy();
  vi.restoreAllMocks();
});

describe('results that are kept until their caller has them', () => {
  const LARGE = 30_000_000;
  const SMALL = 60_000;
  const statementOf = (bytes: number) => `select repeat('x', ${bytes})`;
  const transaction = ({ apiKey: key }: TestOrganization, bytes: number) =>
    service.call('POST', '/api/transaction', { key, body: { statements: [{ sql: statementOf(bytes) }] } });
  const sqlOf = (bytes: number) => JSON.stringify({ query: statementOf(bytes), params: [] });

  /** Its reply has begun, and nobody reads the rest. */
  async function unread({ apiKey }: TestOrganization): Promise<Socket> {
    const body = JSON.stringify({ statements: [{ sql: statementOf(LARGE) }] });
    const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
    socket.write(plainRequest(apiKey, body).replace('/api/query', '/api/transaction'));
    await once(socket, 'readable');
    return socket;
  }

  it('are limited for each organization, and leave room when they are taken or nobody wants them any more', async () => {
    // Who reads nothing is waited for all the time.
    await start({ POSTERN_HTTP_SEND_TIMEOUT_MS: '600000' });
    const sockets: Socket[] = [];
    while (sockets.length < 4) sockets.push(await unread(acme));
    const body = { statements: [{ sql: 'create table t ()' }, { sql: statementOf(LARGE) }] };
    const refused = await service.call('POST', '/api/transaction', { key: acme.apiKey, body });
    expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_requests', sqlstate: '53300', statementIndex: 1 } });
    expect((await query(acme, { sql: 'select from t' })).body.sqlstate).toBe('42P01');
    expect(refused.body.message).toBe("the organization's unread results exceed the memory limit");
    const headers = { 'neon-connection-string': `postgresql://${acme.id}:${acme.apiKey}@x/${acme.id}` };
    const neon = await fetch(`${service.httpUrl}/sql`, { method: 'POST', headers, body: sqlOf(LARGE) });
    expect([neon.status, await neon.json()]).toMatchObject([400, { code: '53300' }]);
    expect((await transaction(acme, SMALL)).status).toBe(200);
    expect((await transaction(other, LARGE)).status).toBe(200);
    for (const socket of sockets) socket.destroy();
    await eventually('there is room', async () => (await transaction(acme, LARGE)).status === 200);
    for (let i = 0; i < 4; i += 1) expect((await transaction(acme, LARGE)).status).toBe(200);
  });
});

it('pages of the audit log have the same room', async () => {
  await start({});
  const sql = `select 1 /*${'\u0001'.repeat(1_500)}*/`;
  await Promise.all(Array.from({ length: 30 }, () => query(acme, { sql })));
  const page = (limit: number) =>
    service.call('GET', `/api/audit?action=query&limit=${limit}`, { key: acme.apiKey, headers: { 'accept-encoding': 'identity' } });
  await eventually('all entries', async () => (await page(30)).body.data.length === 30);
  const add = vi.spyOn(MemoryBudget.prototype, 'count');
  const exhaustedBy = vi.spyOn(MemoryBudget.prototype, 'exhaustedBy').mockReturnValue('its own');
  expect(await page(30)).toMatchObject({ status: 429, body: { code: 'too_many_requests', retryable: true } });
  expect((await page(1)).status).toBe(200);
  exhaustedBy.mockRestore();
  add.mockClear();
  const large = await page(30);
  expect(large).toMatchObject({ status: 200 });
  expect(large.headers.get('content-type')).toBe('application/json; charset=utf-8');
  const bytes = Number(large.headers.get('content-length'));
  await eventually('it is taken', () => add.mock.calls.some(([, added]) => added === -bytes));
  expect(add).toHaveBeenCalledWith(acme.id, bytes);
  add.mockRestore();
});
