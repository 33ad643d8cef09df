import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { generateApiKey } from '../../src/auth/tokens.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { type JsonReply, PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({
    POSTERN_BACKENDS_PER_TENANT: '3',
    POSTERN_QUEUE_TIMEOUT_MS: '5000',
    POSTERN_TRUST_PROXY: '127.0.0.1',
  });
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE rows_to_lock AS SELECT 1 AS id UNION SELECT 2');
});
afterAll(() => service.close());

const call = (method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<JsonReply> =>
  service.call(method, path, {
    key: organization.apiKey,
    ...(body === undefined ? {} : { body }),
    ...(headers === undefined ? {} : { headers }),
  });
const query = (sql: string, more: object = {}) => call('POST', '/api/query', { sql, ...more });
const transact = (statements: readonly string[], more: object = {}) =>
  call('POST', '/api/transaction', { statements: statements.map((sql) => ({ sql })), ...more });
const migrate = (name: string, sql: string) => call('POST', '/api/migrations', { name, sql });

/** A transaction over HTTP that meets, after its landmark, what a wire session does then. */
async function meet(http: readonly string[], wire: { before: string; after: string }, more: object = {}): Promise<JsonReply> {
  const [client, watcher] = [await service.connect(organization), await service.connect(organization)];
  await client.query(`BEGIN; ${wire.before}`);
  const [first = '', ...rest] = http;
  const reply = transact([first, LANDMARK, ...rest], more);
  await landmarkPassed(watcher);
  await client.query(wire.after);
  const answered = await reply;
  await client.query('ROLLBACK');
  await Promise.all([client.end(), watcher.end()]);
  return answered;
}

/**
 * A transaction over HTTP that closes a circle of two. PostgreSQL looks for one when a session has waited for a second, and ends the
 * session that looked: the other one, of the server's superuser, does not look.
 */
async function meetInCircle(): Promise<JsonReply> {
  const [database, schema] = PLACEMENT === 'schema' ? ['postern_shared', organization.id] : [organization.id, 'public'];
  const look = new pg.Client(inject('cluster'));
  const other = new pg.Client({ ...inject('cluster'), database, options: `-c deadlock_timeout=1h -c search_path=${schema}` });
  const holder = await service.connect(organization);
  await Promise.all([look.connect(), other.connect()]);
  const isWaiting = (what: string, condition: string, value: unknown) =>
    eventually(what, async () => (await look.query(`SELECT FROM pg_stat_activity WHERE ${condition}`, [value])).rowCount === 1);

  await holder.query(`BEGIN; ${LANDMARK}`);
  const lock = (id: number) => `SELECT * FROM rows_to_lock WHERE id = ${id} FOR UPDATE`;
  const reply = transact([lock(1), LANDMARK, lock(2)]);
  await isWaiting('it waits at its landmark', "usename = $1 AND wait_event = 'advisory'", organization.id);
  await other.query(`BEGIN; ${lock(2)}`);
  const { rows } = await other.query('SELECT pg_backend_pid() AS pid');
  const blocked = other.query(lock(1));
  await isWaiting('the other one waits for it', "pid = $1 AND wait_event_type = 'Lock'", rows[0].pid);
  await holder.query('COMMIT');
  const answered = await reply;
  await blocked;
  await Promise.all([holder, look, other].map((client) => client.end()));
  return answered;
}

type Case = readonly [code: string, status: number, sqlstate: string | undefined, make: () => Promise<JsonReply>];

const CASES: readonly Case[] = [
  ['invalid_request', 400, '22023', () => call('POST', '/api/query', '{"sql":')],
  ['invalid_request', 400, '22023', () => query('')],
  ['invalid_request', 400, '22023', () => query('SELECT 1', { colour: 'red' })],
  ['invalid_request', 400, '22023', () => query("SELECT '\0'")],
  ['unsupported_statement', 400, '0A000', () => query('BEGIN')],
  ['unsupported_statement', 400, '0A000', () => query('COPY rows_to_lock TO STDOUT')],
  ['unsupported_statement', 400, '0A000', () => query('LISTEN news')],
  ['unauthorized', 401, '28P01', () => service.call('GET', '/api/auth/me', { key: generateApiKey() })],
  ['not_found', 404, '42704', () => call('GET', '/api/nothing')],
  ['method_not_allowed', 405, '0A000', () => call('DELETE', '/api/query')],
  ['unsupported_media_type', 415, '0A000', () => call('POST', '/api/query', 'SELECT 1', { 'content-type': 'text/plain' })],
  ['payload_too_large', 413, '54000', () => query(`SELECT '${'x'.repeat(17 * 1_048_576)}'`)],
  ['email_taken', 409, '23505', () => call('POST', '/api/auth/signup', { orgName: 'B', email: organization.email.toUpperCase() })],
  [
    'migration_checksum_mismatch',
    409,
    '23505',
    async () => {
      await migrate('one', 'SELECT 1');
      return migrate('one', 'SELECT 2');
    },
  ],
  [
    'migration_not_reversible',
    409,
    '55000',
    async () => {
      await migrate('two', 'SELECT 1');
      return call('POST', '/api/migrations/two/rollback', {});
    },
  ],
  [
    'migration_not_newest',
    409,
    '55000',
    async () => {
      await call('POST', '/api/migrations', { name: 'older', sql: 'SELECT 1', rollbackSql: 'SELECT 1' });
      await migrate('newer', 'SELECT 1');
      return call('POST', '/api/migrations/older/rollback', {});
    },
  ],
  ['response_too_large', 400, '54000', () => transact(["SELECT repeat('x', 17 << 20)", "SELECT repeat('x', 17 << 20)"])],
  ['statement_timeout', 504, '57014', () => query('SELECT pg_sleep(60)', { timeoutMs: 50 })],
  ['statement_canceled', 400, '57014', () => query('SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)')],
  ['database_unavailable', 503, '57P01', () => query('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)')],
  ['sql_error', 400, '42601', () => query('SELEC 1')],
  ['sql_error', 400, '42P01', () => query('SELECT * FROM nowhere')],
  ['sql_error', 400, '22P02', () => query('SELECT $1::int', { params: ['one'] })],
  [
    'lock_not_available',
    400,
    '55P03',
    async () => {
      const holder = await service.connect(organization);
      await holder.query('BEGIN; SELECT * FROM rows_to_lock FOR UPDATE');
      const reply = await query('SELECT * FROM rows_to_lock FOR UPDATE NOWAIT');
      await holder.end();
      return reply;
    },
  ],
  [
    'serialization_failure',
    409,
    '40001',
    () =>
      meet(
        ['SELECT * FROM rows_to_lock', 'UPDATE rows_to_lock SET id = id WHERE id = 1'],
        { before: 'UPDATE rows_to_lock SET id = id WHERE id = 1', after: 'COMMIT' },
        { isolationLevel: 'repeatable read' },
      ),
  ],
  ['deadlock_detected', 409, '40P01', meetInCircle],
  [
    'pool_timeout',
    503,
    '53300',
    async () => {
      const clients = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
      await Promise.all(clients.map((client) => client.query('BEGIN')));
      const reply = await query('SELECT 1');
      await Promise.all(clients.map((client) => client.end()));
      return reply;
    },
  ],
];

const RETRYABLE = new Set(['40001', '40P01', '53300', '55P03']);

describe('an error at the JSON door', () => {
  it.each(CASES)('%s is %i with SQLSTATE %s', async (code, status, sqlstate, make) => {
    const reply = await make();
    expect(reply.headers.get('content-type')).toBe('application/problem+json');
    expect(reply.body).toMatchObject({
      type: `/docs#error-${code}`,
      title: expect.any(String),
      status,
      detail: expect.any(String),
      instance: expect.stringMatching(/^\/api\//),
      code,
      sqlstate,
      message: expect.any(String),
      requestId: reply.headers.get('x-request-id'),
      retryable: RETRYABLE.has(sqlstate ?? ''),
    });
    expect(reply.status).toBe(status);
    if (status === 401) expect(reply.headers.get('www-authenticate')).toMatch(/^Bearer realm="postern"/);
    if (status === 503) expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0);
    // Whatever it was, the next call is served.
    expect((await query('SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('is one of its own for what is no HTTP at all', async () => {
    const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
    socket.end('\0\0\0\x08\x04\xd2\x16\x2f\r\n\r\n');
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 .*"code":"malformed_request"/s);
  });
});

describe('a key that is none', () => {
  const key = generateApiKey();
  const lastChanged = key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
  const oneTypo = key.slice(0, 10) + (key[10] === '0' ? '1' : '0') + key.slice(11);

  it.each([
    ['half of it', key.slice(0, 20)],
    ['too long', `${key}0`],
    ['with a wrong checksum', lastChanged],
    ['with one typo', oneTypo],
    ['of another service', `sk_${key.slice(3)}`],
    ['in capitals', key.toUpperCase()],
    ['the prefix alone', 'pst_'],
    ['of 10,000 characters', `pst_${'0'.repeat(10_000)}`],
  ])('%s: is refused without a look-up', async (_what, bad) => {
    const lookUp = vi.spyOn(service.service.router.catalog, 'findByDigest');
    const reply = await service.call('GET', '/api/auth/me', { key: bad });
    expect([reply.status, reply.body.code, reply.body.message]).toEqual([401, 'unauthorized', 'the API key is not valid']);
    expect(lookUp).not.toHaveBeenCalled();
    lookUp.mockRestore();
  });

  it('that could be one is looked up, and refused in the same words', async () => {
    const lookUp = vi.spyOn(service.service.router.catalog, 'findByDigest');
    const reply = await service.call('GET', '/api/auth/me', { key: generateApiKey() });
    expect([reply.status, reply.body.message]).toEqual([401, 'the API key is not valid']);
    expect(lookUp).toHaveBeenCalledOnce();
    lookUp.mockRestore();
  });
});

describe('an error at the wire door', () => {
  it.each([
    ['a wrong key', '28P01', () => service.connect({ ...organization, apiKey: generateApiKey() })],
    ['half a key', '28P01', () => service.connect({ ...organization, apiKey: organization.apiKey.slice(0, 20) })],
    ['an unknown user', '28P01', () => service.connect({ ...organization, id: 'org_nobody000000' })],
    ['an unknown database', '3D000', () => service.connect(organization, { database: 'nowhere' })],
    [
      'no backend in time',
      '53300',
      async () => {
        const clients = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
        await Promise.all(clients.map((client) => client.query('BEGIN')));
        try {
          const late = await service.connect(organization);
          await late.query('SELECT 1').finally(() => late.end());
        } finally {
          await Promise.all(clients.map((client) => client.end()));
        }
      },
    ],
  ])('%s is SQLSTATE %s', async (_what, code, make) => {
    await expect(make()).rejects.toMatchObject({ code });
    expect((await query('SELECT 1 AS one')).status).toBe(200);
  });

  it('ten wrong keys in a row get another error for a while, and the right one logs in', async () => {
    const [target, other] = [await service.signUp(), await service.signUp()];
    const wrong = { ...target, apiKey: generateApiKey() };
    for (let attempt = 1; attempt <= 10; attempt += 1) await expect(service.connect(wrong)).rejects.toMatchObject({ code: '28P01' });
    await expect(service.connect(wrong)).rejects.toMatchObject({ code: '28000', message: 'too many failed login attempts' });
    await (await service.connect(target)).end();
    await expect(service.connect({ ...other, apiKey: wrong.apiKey })).rejects.toMatchObject({ code: '28P01' });
    expect((await service.query(target, 'SELECT 1')).status).toBe(200);
  });

  it('too many clients is 53300, and one that leaves makes room', async () => {
    const small = await startTestService({ POSTERN_CLIENTS_PER_TENANT: '2' });
    const lodger = await small.signUp();
    const clients = [await small.connect(lodger), await small.connect(lodger)];
    await expect(small.connect(lodger)).rejects.toMatchObject({ severity: 'FATAL', code: '53300' });
    await clients[0]?.end();
    await eventually('there is room again', () =>
      small.connect(lodger).then(
        (client) => client.end().then(() => true),
        () => false,
      ),
    );
    await clients[1]?.end();
    await small.close();
  });

  it('sitting in a transaction for too long is 25P03, running for too long 57014', async () => {
    const strict = await startTestService({ POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS: '1000', POSTERN_WIRE_STATEMENT_TIMEOUT_MS: '5000' });
    const lodger = await strict.signUp();
    const [sitting, running] = [await strict.connect(lodger), await strict.connect(lodger)];
    const lastWords = new Promise((resolve) => sitting.once('error', resolve));
    await sitting.query('BEGIN');
    await expect(running.query('SELECT pg_sleep(60)')).rejects.toMatchObject({ code: '57014' });
    expect(await lastWords).toMatchObject({ severity: 'FATAL', code: '25P03' });
    expect((await running.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await running.end();
    await strict.close();
  });
});
