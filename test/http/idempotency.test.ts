import { connect } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());
beforeEach(async () => {
  acme = await service.signUp();
  await service.query(acme, 'create table notes (body text)');
});

const KEPT = PLACEMENT === 'database' ? 'postern.idempotency_keys' : 'postern_idempotency_keys';
const INSERT = { sql: 'insert into notes values ($1) returning body', params: ['hello'] };

const post = (path: string, body: unknown, key: string | undefined, headers: Record<string, string> = {}, organization = acme) =>
  service.call('POST', path, {
    key: organization.apiKey,
    body,
    headers: { ...(key === undefined ? {} : { 'idempotency-key': key }), ...headers },
  });
const notes = async () => (await service.query(acme, 'select body from notes')).body.rows.map(({ body }: { body: string }) => body);

describe('the same request with the same key', () => {
  it.each([
    ['/api/query', INSERT, 200],
    ['/api/transaction', { statements: [INSERT, { sql: 'select count(*) from notes' }] }, 200],
    ['/api/migrations', { name: 'one', sql: "insert into notes values ('hello')" }, 201],
    ['/api/migrations', { name: 'one', sql: "insert into notes values ('hello')", transaction: false }, 201],
  ])('to %s is answered as the first time, and done once', async (path, body, status) => {
    const first = await post(path, body, 'a-key');
    expect([first.status, first.headers.get('idempotency-replayed')]).toEqual([status, null]);
    const second = await post(path, body, 'a-key');
    expect([second.status, second.headers.get('idempotency-replayed')]).toEqual([status, 'true']);
    expect(second.headers.get('content-type')).toBe(first.headers.get('content-type'));
    expect(second.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'));
    expect(second.body).toEqual(first.body);
    expect(await notes()).toEqual(['hello']);
  });

  it('a line each is answered so again', async () => {
    const lines = (key: string) =>
      fetch(`${service.httpUrl}/api/query`, {
        method: 'POST',
        headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json', accept: key, 'idempotency-key': 'k' },
        body: JSON.stringify(INSERT),
      });
    const first = await (await lines('application/x-ndjson')).text();
    expect(first.split('\n')).toEqual([
      expect.stringMatching(/^\{"fields":/),
      '{"row":{"body":"hello"}}',
      expect.stringMatching(/^\{"complete":/),
      '',
    ]);
    const second = await lines('application/json');
    expect([second.headers.get('content-type'), second.headers.get('idempotency-replayed')]).toEqual(['application/x-ndjson', 'true']);
    expect(await second.text()).toBe(first);
  });

  it('from another organization is another request', async () => {
    const other = await service.signUp();
    await service.query(other, 'create table notes (body text)');
    for (const organization of [acme, other]) {
      const { status, headers } = await post('/api/query', INSERT, 'k', {}, organization);
      expect([status, headers.get('idempotency-replayed')]).toEqual([200, null]);
    }
  });

  it('is done again if it has failed', async () => {
    const body = { sql: "insert into notes values ('late') returning (select body from later)" };
    expect(await post('/api/query', body, 'k')).toMatchObject({ status: 400, body: { sqlstate: '42P01' } });
    await service.query(acme, 'create table later (body text)');
    expect(await post('/api/query', body, 'k')).toMatchObject({ status: 200, body: { rowCount: 1 } });
    expect(await notes()).toEqual(['late']);
  });

  it('is done each time where nothing is done: readOnly, dryRun', async () => {
    const migration = { name: 'one', sql: "insert into notes values ('x')", dryRun: true };
    for (const [path, body] of [
      ['/api/query', { sql: 'select clock_timestamp()', readOnly: true }],
      ['/api/transaction', { statements: [{ sql: 'select clock_timestamp()' }], readOnly: true }],
      ['/api/migrations', migration],
    ] as const) {
      const replies = [await post(path, body, 'k'), await post(path, body, 'k')];
      expect(replies.map(({ status, headers }) => [status, headers.get('idempotency-replayed')])).toEqual([
        [200, null],
        [200, null],
      ]);
      expect(replies[0]?.body).not.toEqual(replies[1]?.body);
    }
  });
});

describe('a key', () => {
  it('stands for one request: another path or body is 422', async () => {
    await post('/api/query', INSERT, 'k');
    for (const [path, body] of [
      ['/api/query', { ...INSERT, params: ['other'] }],
      ['/api/query', `${JSON.stringify(INSERT)} `],
      ['/api/transaction', { statements: [INSERT] }],
    ] as const) {
      const { status, body: problem } = await post(path, body, 'k');
      expect([status, problem.code, problem.retryable]).toEqual([422, 'idempotency_key_reused', false]);
    }
    expect(await notes()).toEqual(['hello']);
  });

  it.each(['x'.repeat(256), 'a b', 'ä', 'tab\there'])('cannot be %j', async (key) => {
    const { status, body } = await post('/api/query', INSERT, key);
    expect([status, body.code, body.message]).toEqual([
      400,
      'invalid_request',
      'Idempotency-Key: must be 1 to 255 visible ASCII characters',
    ]);
    expect(await notes()).toEqual([]);
  });

  it.each(['x', 'x'.repeat(255), '"8e03978e-40d5-43e8-bc93-6894a57f9324"', "';--", '!~{}'])('can be %.40s', async (key) => {
    expect((await post('/api/query', INSERT, key)).status).toBe(200);
    expect((await post('/api/query', INSERT, key)).headers.get('idempotency-replayed')).toBe('true');
  });

  it.each(['Idempotency-Key: ', 'Idempotency-Key: a\r\nIdempotency-Key: b'])('cannot be empty or two: %j', async (header) => {
    const text = JSON.stringify(INSERT);
    const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
    socket.end(
      `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${acme.apiKey}\r\n${header}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
    );
    let reply = '';
    for await (const chunk of socket) reply += chunk;
    expect(reply).toMatch(/^HTTP\/1\.1 400 /);
    expect(reply).toContain('Idempotency-Key: must be 1 to 255 visible ASCII characters');
  });

  it('whose reply would be too large to keep is refused, and nothing is done', async () => {
    const body = { sql: "insert into notes select repeat('x', 1000) from generate_series(1, 1100) returning body" };
    const { status, body: problem } = await post('/api/query', body, 'k');
    expect([status, problem.code]).toEqual([400, 'response_too_large']);
    expect(problem.hint).toContain('Idempotency-Key');
    expect(await notes()).toEqual([]);
  });
});

describe('while a request runs,', () => {
  it('another with its key is 409 and may be tried later', async () => {
    const body = { statements: [INSERT, { sql: LANDMARK }, { sql: 'select pg_advisory_xact_lock(4712)' }] };
    const watcher = await service.connect(acme);
    await watcher.query('select pg_advisory_lock(4712)');
    const running = post('/api/transaction', body, 'k');
    await landmarkPassed(watcher);
    const meanwhile = await post('/api/transaction', body, 'k');
    expect([meanwhile.status, meanwhile.body.code, meanwhile.body.retryable, meanwhile.headers.get('retry-after')]).toEqual([
      409,
      'idempotency_in_progress',
      true,
      '1',
    ]);
    await watcher.query('select pg_advisory_unlock(4712)');
    expect((await running).status).toBe(200);
    expect((await post('/api/transaction', body, 'k')).headers.get('idempotency-replayed')).toBe('true');
    await watcher.end();
    expect(await notes()).toEqual(['hello']);
  });

  it('of ten at the same moment one does it', async () => {
    const replies = await Promise.all(Array.from({ length: 10 }, () => post('/api/query', INSERT, 'k')));
    const done = replies.filter(({ status, headers }) => status === 200 && headers.get('idempotency-replayed') === null);
    expect(done).toHaveLength(1);
    for (const { status, body } of replies)
      expect(status === 200 ? body : body.code).toEqual(status === 200 ? done[0]?.body : 'idempotency_in_progress');
    expect(await notes()).toEqual(['hello']);
  });
});

it.each([
  [101, 'text/html'],
  [999, 'text/html; charset=\u0007'],
])('is framed by us, whatever the organization has made of what is kept (%i, %j)', async (status, contentType) => {
  const { body } = await post('/api/query', INSERT, 'k');
  await service.query(acme, `update ${KEPT} set status = $1, content_type = $2`, [status, contentType]);
  const again = await post('/api/query', INSERT, 'k');
  expect([again.status, again.headers.get('content-type'), again.body]).toEqual([200, 'application/json; charset=utf-8', body]);
});

it('a client of the wire door finds the replies out of the way of its own tables', async () => {
  await post('/api/query', INSERT, 'k');
  const client = await service.connect(acme);
  const { rows } = await client.query(`select key, status, content_type, length(fingerprint) as digits from ${KEPT}`);
  expect(rows).toEqual([{ key: 'k', status: 200, content_type: 'application/json; charset=utf-8', digits: 64 }]);
  const tables = await client.query(
    "select relname from pg_class where relnamespace = current_schema()::regnamespace and relname !~ '^postern_' and relkind = 'r'",
  );
  expect(tables.rows).toEqual([{ relname: 'notes' }]);
  await client.end();
});
