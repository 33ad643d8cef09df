import { once } from 'node:events';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { ADVISORY_LOCKS } from '../../src/catalog/advisory-locks.ts';
import { ProcessRequests } from '../../src/catalog/processes.ts';
import type { Doors, JsonReply, TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestService, testVariables } from '../support/service.ts';

/** Two processes of one Postern. */
let here: TestService;
let there: TestService;
let organization: TestOrganization;
let controlDatabase: string;
/** A session of the server's superuser. */
let server: pg.Client;
const clients: pg.Client[] = [];

beforeAll(async () => {
  const variables: Record<string, string> = { ...testVariables(), POSTERN_STATEMENT_TIMEOUT_MS: '300000' };
  controlDatabase = String(variables.POSTERN_CONTROL_DATABASE);
  here = await startTestService(variables);
  there = await startTestService(variables);
  server = new pg.Client(inject('cluster'));
  await server.connect();
});
afterAll(async () => {
  await Promise.all([here.close(), there.close(), server.end()]);
});
beforeEach(async () => {
  organization = await here.signUp();
});
afterEach(async () => {
  for (const client of clients.splice(0)) await client.end().catch(() => {});
});

interface Listed {
  readonly sessionId: string;
  readonly door: string;
  readonly state: string;
  readonly applicationName: string | null;
  readonly pins: readonly { readonly reason: string; readonly explanation: string }[];
  readonly statement: { readonly sql: string; readonly runningMs: number } | null;
  readonly waitsFor: {
    readonly lock: string;
    readonly mode: string;
    readonly relation: string | null;
    readonly since: string | null;
    readonly isHeldElsewhere: boolean;
  } | null;
  readonly blockedBy: readonly string[];
  readonly isOwn: boolean;
}

async function open(doors: Doors, name: string, as = organization): Promise<pg.Client> {
  const client = await doors.connect(as, { application_name: name });
  clients.push(client);
  return client;
}

const get = (doors: Doors, key = organization.apiKey): Promise<JsonReply> => doors.call('GET', '/api/sessions', { key });

/** Those of all processes: one may not answer in time. */
async function listed(doors: Doors = here, key = organization.apiKey): Promise<Listed[]> {
  let body: JsonReply['body'];
  await eventually('all processes have answered', async () => {
    ({ body } = await get(doors, key));
    return body.isComplete;
  });
  return body.sessions;
}

/** As {@link get}, when so many processes have answered in their time. */
async function answeredBy(count: number): Promise<JsonReply['body']> {
  let body: JsonReply['body'];
  await eventually(`${count} processes have answered`, async () => {
    ({ body } = await get(here));
    return body.processes.answered === count;
  });
  return body;
}

/** Waits for the session, because other processes are not asked at every call. */
async function session(name: string, isSo: (session: Listed) => boolean = () => true): Promise<Listed> {
  let found: Listed | undefined;
  await eventually(`${name} is listed so`, async () => {
    found = (await listed()).find(({ applicationName, statement }) => applicationName === name || statement?.sql.includes(name));
    return found !== undefined && isSo(found);
  });
  return found as Listed;
}

/** As {@link session}, for one that sleeps: a server that has not read a statement yet ignores a request to cancel it. */
async function sleeping(name: string, isSo: (session: Listed) => boolean = ({ state }) => state === 'active'): Promise<Listed> {
  const asleep = "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep'";
  await eventually('the server runs it', async () => (await server.query(asleep, [organization.id])).rowCount === 1);
  return session(name, isSo);
}

const signal = (method: 'cancel' | 'end', { sessionId }: Pick<Listed, 'sessionId'>, key = organization.apiKey, doors: Doors = here) =>
  method === 'cancel'
    ? doors.call('POST', `/api/sessions/${sessionId}/cancel`, { key })
    : doors.call('DELETE', `/api/sessions/${sessionId}`, { key });

/** A message of the wire protocol; without a type it is a StartupMessage. */
function packet(type: string, body: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(type), length, Buffer.from(body, 'latin1')]);
}

async function keyOf(scope: string): Promise<TestOrganization> {
  const { body } = await here.call('POST', '/api/keys', { key: organization.apiKey, body: { name: scope, scope } });
  return { ...organization, apiKey: body.apiKey };
}

it('lists the sessions of every process with what they do, run and hold', async () => {
  const begun = Date.now();
  await open(there, 'idle');
  const busy = await open(there, 'busy');
  const transaction = await open(there, 'transaction');
  const failed = await open(here, 'failed');
  const listening = await open(here, 'listening');
  await transaction.query('BEGIN');
  await failed.query('BEGIN');
  await failed.query('SELECT 1 / 0').catch(() => {});
  await listening.query('LISTEN news; CREATE TEMP TABLE mine ()');
  await listening.query('SET application_name = listening');
  const running = busy.query('SELECT $1::text, pg_sleep(600)', ['never shown']).catch(() => {});
  await sleeping('busy');
  await session('transaction');
  await session('failed', ({ state }) => state === 'idle in failed transaction');

  const body = await answeredBy(2);
  expect(body).toMatchObject({ isComplete: true, processes: { asked: 2, answered: 2 } });
  const byName = Object.fromEntries(body.sessions.map((one: Listed) => [one.applicationName ?? 'http', one]));
  const me = (await here.call('GET', '/api/auth/me', { key: organization.apiKey })).body;
  const common = { door: 'wire', keyId: me.key.keyId, keyPrefix: me.key.prefix, sourceIp: '127.0.0.1', isEncrypted: false, isOwn: false };
  expect(byName).toMatchObject({
    idle: { ...common, state: 'idle', pins: [], statement: null, userAgent: null },
    busy: { ...common, state: 'active', pins: [], statement: { sql: 'SELECT $1::text, pg_sleep(600)' } },
    transaction: { ...common, state: 'idle in transaction', pins: [{ reason: 'transaction' }], statement: null },
    failed: { ...common, state: 'idle in failed transaction', pins: [{ reason: 'transaction' }] },
    http: { ...common, door: 'http', state: 'active', processId: null, applicationName: null, statement: null, isOwn: true },
  });
  expect(byName.listening.pins.map(({ reason }: { reason: string }) => reason).sort()).toEqual(['listen', 'temp']);
  expect(byName.listening.pins[0].explanation).toMatch(/^It .*backend until .*\.$/);
  const { rows } = await transaction.query('SELECT pg_backend_pid() AS pid');
  expect(byName.transaction.processId).toBe(rows[0].pid);
  expect(Date.parse(byName.busy.connectedAt)).toBeLessThanOrEqual(Date.parse(byName.busy.statement.startedAt));
  expect(Date.parse(byName.busy.statement.startedAt)).toBeGreaterThanOrEqual(begun);

  expect((await signal('cancel', byName.busy)).body).toEqual({ sessionId: byName.busy.sessionId, canceled: true });
  await running;
});

it('shows SQL in the words of the client, with secrets masked and cut', async () => {
  const client = await open(there, 'showing');
  await client.query('CREATE TABLE notes (body text)');
  await client.query('BEGIN');
  const long = `SELECT pg_sleep(600), '${'x'.repeat(20_000)}'`;
  const texts: readonly [sent: string | { name: string; text: string }, shown: string][] = [
    [
      "SELECT pg_sleep(600), 'hidden' AS password FROM (SELECT count(*) FROM public.notes) n",
      "SELECT pg_sleep(600), '***' AS password FROM (SELECT count(*) FROM public.notes) n",
    ],
    [
      { name: 'named', text: 'SELECT pg_sleep(600) FROM (SELECT count(*) FROM public.notes) n' },
      'SELECT pg_sleep(600) FROM (SELECT count(*) FROM public.notes) n',
    ],
    [{ name: '', text: 'SELECT pg_sleep(600), count(*) AS é FROM public.notes' }, 'SELECT pg_sleep(600), count(*) AS é FROM public.notes'],
    [long, "SELECT pg_sleep(600), '***'"],
    [`SELECT pg_sleep(600)${' '.repeat(2_000)}`, `SELECT pg_sleep(600)${' '.repeat(980)}`],
  ];
  for (const [sent, shown] of texts) {
    const running = (typeof sent === 'string' ? client.query(sent) : client.query({ ...sent, values: [] })).catch(({ code }) => code);
    const found = await sleeping('showing', ({ statement }) => statement?.sql === shown);
    await signal('cancel', found);
    expect(await running).toBe('57014');
    await client.query('ROLLBACK; BEGIN');
  }
});

it('cancels a statement and ends a session of another process, which the audit log tells', async () => {
  const client = await open(there, 'victim');
  await client.query('BEGIN');
  const canceled = client.query('SELECT pg_sleep(600)').catch((error) => error);
  const victim = await sleeping('victim');
  expect(await signal('cancel', victim)).toMatchObject({ status: 200 });
  expect(await canceled).toMatchObject({ code: '57014', message: 'canceling statement due to user request' });
  expect((await client.query('ROLLBACK')).command).toBe('ROLLBACK');

  const end = once(client, 'error');
  const { status, body } = await signal('end', victim);
  expect([status, body]).toEqual([200, { sessionId: victim.sessionId, endedAt: expect.stringMatching(/^\d{4}-.*Z$/) }]);
  expect((await end)[0]).toMatchObject({ code: '57P01', message: 'terminating connection due to administrator command' });
  await eventually('it is gone', async () => (await signal('end', victim)).status === 404);

  const recorded = async (action: string) =>
    (await here.call('GET', `/api/audit?action=${action}&outcome=ok`, { key: organization.apiKey })).body.data;
  await eventually(
    'both are recorded',
    async () => (await recorded('sessions.end')).length === 1 && (await recorded('sessions.cancel')).length === 1,
  );
  expect((await recorded('sessions.end'))[0].statement).toMatchObject({ sql: `END SESSION ${victim.sessionId}`, command: 'END SESSION' });
  expect((await recorded('sessions.cancel'))[0].statement.sql).toBe(`CANCEL SESSION ${victim.sessionId}`);
  expect(await recorded('sessions.list')).toEqual([]);
});

it('cancels and ends requests over HTTP, of either path and in the queue', async () => {
  const run = (path: string, body: object, headers = {}) => there.call('POST', path, { key: organization.apiKey, body, headers });
  const asks: readonly ((comment: string) => Promise<JsonReply>)[] = [
    (comment) => run('/api/query', { sql: `SELECT pg_sleep(600) -- ${comment}` }),
    (comment) => run('/api/query', { sql: `SELECT pg_sleep(600) -- ${comment}` }, { 'x-forwarded-proto': 'https', accept: 'text/csv' }),
    (comment) => run('/api/transaction', { statements: [{ sql: 'SELECT 1' }, { sql: `SELECT pg_sleep(600) -- ${comment}` }] }),
  ];
  for (const [index, ask] of asks.entries()) {
    const canceled = ask(`canceled${index}`);
    const one = await sleeping(`canceled${index}`);
    expect(one).toMatchObject({ door: 'http', isOwn: false, pins: [] });
    expect((await signal('cancel', one)).status).toBe(200);
    expect(await canceled).toMatchObject({ status: 400, body: { code: 'statement_canceled', sqlstate: '57014', retryable: false } });

    const ended = ask(`ended${index}`);
    await signal('end', await sleeping(`ended${index}`));
    expect(await ended).toMatchObject({ status: 503, body: { code: 'database_unavailable', sqlstate: '57P01', retryable: false } });
  }
});

it('tells who waits for a backend, and lets that be canceled', async () => {
  const crowd = await Promise.all(Array.from({ length: 16 }, () => open(here, 'crowd')));
  await Promise.all(crowd.map((client) => client.query('BEGIN')));
  const waiting = await open(here, 'waiting');
  const queued = waiting.query('SELECT 1').catch(({ code }) => code);
  const request = here.query(organization, 'SELECT 2');
  await session('waiting', ({ state, statement }) => state === 'waiting for a backend' && statement === null);
  await eventually('the request waits', async () =>
    (await listed()).some(({ door, state }) => door === 'http' && state === 'waiting for a backend'),
  );
  for (const one of (await listed()).filter(({ state }) => state === 'waiting for a backend')) await signal('cancel', one);
  expect(await queued).toBe('57014');
  expect(await request).toMatchObject({ status: 400, body: { code: 'statement_canceled' } });
});

it('shows what a session waits for and by whom it is blocked, across processes, doors and keys, up to the root', async () => {
  const writer = await keyOf('write');
  const root = await open(here, 'root');
  await root.query('CREATE TABLE orders (id int PRIMARY KEY, total int); INSERT INTO orders VALUES (1, 1), (2, 2)');
  await root.query('BEGIN; UPDATE orders SET total = 0 WHERE id = 1');
  const middle = await open(there, 'middle');
  await middle.query('BEGIN; UPDATE orders SET total = 0 WHERE id = 2');
  const update = middle.query('UPDATE orders SET total = 0 WHERE id = 1');
  await session('middle', ({ waitsFor }) => waitsFor !== null);
  const request = there.query(writer, 'ALTER TABLE orders ADD note text');
  const asked = Date.now();
  const blocked = await session('ADD note', ({ waitsFor }) => waitsFor?.relation != null);
  const all = await listed();
  const [first, second] = ['root', 'middle'].map((name) => all.find(({ applicationName }) => applicationName === name) as Listed);
  expect(first).toMatchObject({ waitsFor: null, blockedBy: [], state: 'idle in transaction' });
  expect(second).toMatchObject({
    waitsFor: { lock: 'transactionid', mode: 'ShareLock', relation: 'public.orders', since: expect.any(String), isHeldElsewhere: false },
    blockedBy: [first?.sessionId],
  });
  expect(blocked).toMatchObject({
    door: 'http',
    waitsFor: { lock: 'relation', mode: 'AccessExclusiveLock', relation: 'public.orders', isHeldElsewhere: false },
  });
  expect(new Set(blocked.blockedBy)).toEqual(new Set([first?.sessionId, second?.sessionId]));
  expect(Math.abs(Date.parse(blocked.waitsFor?.since ?? '') - asked)).toBeLessThan(60_000);

  // The key of the request sees that one only, and whom it waits for. Another organization sees neither.
  const seen = (await listed(here, writer.apiKey)).filter(({ isOwn }) => !isOwn);
  expect(seen.map(({ sessionId, blockedBy }) => [sessionId, new Set(blockedBy)])).toEqual([
    [blocked.sessionId, new Set([first?.sessionId, second?.sessionId])],
  ]);
  const stranger = await here.signUp();
  expect((await listed(here, stranger.apiKey)).map(({ isOwn, blockedBy }) => [isOwn, blockedBy])).toEqual([[true, []]]);

  expect((await signal('end', first as Listed)).status).toBe(200);
  expect((await update).rowCount).toBe(1);
  await middle.query('COMMIT');
  expect((await request).status).toBe(200);
  await eventually('nobody waits', async () =>
    (await listed()).every(({ waitsFor, blockedBy }) => waitsFor === null && blockedBy.length === 0),
  );
});

it('tells that something else has the lock, and nothing of what that is', async () => {
  const client = await open(here, 'vacuumed');
  await client.query('CREATE TABLE busy ()');
  const { rows } = await client.query<{ database: string; name: string }>(
    "SELECT current_database() AS database, c.oid::regclass::text AS name FROM pg_class c WHERE relname = 'busy'",
  );
  const database = process.env.TEST_PLACEMENT === 'schema' ? 'postern_shared' : organization.id;
  const other = new pg.Client({ ...inject('cluster'), database });
  await other.connect();
  await other.query(`BEGIN; LOCK TABLE ${process.env.TEST_PLACEMENT === 'schema' ? `${organization.id}.` : 'public.'}${rows[0]?.name}`);
  const reading = client.query('SELECT FROM busy');
  expect(await session('vacuumed', ({ waitsFor }) => waitsFor?.relation != null)).toMatchObject({
    waitsFor: { lock: 'relation', mode: 'AccessShareLock', relation: 'public.busy', isHeldElsewhere: true },
    blockedBy: [],
  });
  await other.query('ROLLBACK');
  await reading;
  await other.end();
});

it('answers pg_blocking_pids() with the numbers of pg_backend_pid(), for sessions of every process', async () => {
  const pidOf = async (client: pg.Client) => Number((await client.query('SELECT pg_backend_pid() AS pid')).rows[0].pid);
  const [root, waiting, asking] = [await open(there, 'root'), await open(there, 'waiting'), await open(here, 'asking')];
  const [rootId, waitingId] = [await pidOf(root), await pidOf(waiting)];
  await root.query('CREATE TABLE orders ()');
  await root.query('BEGIN; LOCK TABLE orders');
  const reading = waiting.query('SELECT FROM orders');
  const ask = async (text: string, values?: unknown[]) =>
    (await asking.query({ text, values, rowMode: 'array' } as pg.QueryArrayConfig)).rows;
  await eventually('it waits', async () => (await ask(`SELECT pg_blocking_pids(${waitingId})`))[0]?.[0].length > 0);
  expect(await ask(`SELECT pg_blocking_pids(${waitingId}), "pg_blocking_pids"(pid => ${rootId})`.replace('pid => ', ''))).toEqual([
    [[rootId], []],
  ]);
  expect(await ask('SELECT pg_catalog.pg_blocking_pids($1), pg_blocking_pids(pg_backend_pid())', [waitingId])).toEqual([[[rootId], []]]);
  expect(await ask('SELECT * FROM pg_blocking_pids($1::int)', [waitingId])).toEqual([[[rootId]]]);
  expect(await ask('SELECT b FROM (VALUES ($1::int), (1)) v(p), unnest(pg_blocking_pids(p)) b', [waitingId])).toEqual([[rootId]]);
  const { rows } = await asking.query(
    'SELECT count(*)::int FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND pid <> pg_backend_pid()',
  );
  expect(rows).toEqual([{ count: 1 }]);
  const stranger = await open(here, 'stranger', await here.signUp());
  expect((await stranger.query(`SELECT pg_blocking_pids(${waitingId}) AS by`)).rows).toEqual([{ by: [] }]);
  await asking.query('BEGIN');
  await expect(asking.query('CREATE VIEW blocked AS SELECT pg_blocking_pids(1)')).resolves.toBeDefined();
  await expect(asking.query('SELECT * FROM blocked')).rejects.toMatchObject({ code: '42501' });
  await root.query('COMMIT');
  await reading;
});

it('says who holds the backends to a client that has waited too long for one, at both doors', async () => {
  const hasty = await startTestService({ ...testVariables(), POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_QUEUE_TIMEOUT_MS: '300' });
  try {
    const whose = await hasty.signUp();
    const [idle, late] = [await open(hasty, 'idle', whose), await open(hasty, 'late', whose)];
    await idle.query('BEGIN');
    const sleeping = hasty.query(whose, 'SELECT pg_sleep(600)');
    const detail =
      /^Waited 300 ms\..* Backends are held by (ses_\w+) \((wire|http), ([a-z ]+) for \d+ s\), (ses_\w+) \((wire|http), ([a-z ]+) for \d+ s\)\.$/;
    let refused: JsonReply | undefined;
    await eventually('both are held', async () => {
      refused = await hasty.query(whose, 'SELECT 1');
      return detail.test(refused.body.detail ?? '');
    });
    expect(refused).toMatchObject({ status: 503, body: { code: 'pool_timeout' } });
    const error = await late.query('SELECT 1').catch((thrown) => thrown);
    expect(error).toMatchObject({ code: '53300', detail: expect.stringMatching(detail) });
    const held = [detail.exec(error.detail)?.slice(1, 4), detail.exec(error.detail)?.slice(4)].sort((a, b) =>
      (a?.[1] ?? '').localeCompare(b?.[1] ?? ''),
    );
    expect(held.map((one) => one?.slice(1))).toEqual([
      ['http', 'active'],
      ['wire', 'idle in transaction'],
    ]);
    for (const [id] of held as string[][]) expect((await signal('end', { sessionId: id ?? '' }, whose.apiKey, hasty)).status).toBe(200);
    expect((await sleeping).status).toBe(503);
    idle.on('error', () => {});
  } finally {
    await hasty.close();
  }
});

it('shows each key its own sessions, an admin key all, and other organizations none', async () => {
  const [writer, reader] = [await keyOf('write'), await keyOf('read')];
  await open(there, 'writing', writer);
  await open(there, 'reading', reader);
  await open(there, 'owning');
  const stranger = await there.signUp();
  await Promise.all(['writing', 'reading', 'owning'].map((name) => session(name)));
  const all = await listed();
  const [writing, reading, owning] = ['writing', 'reading', 'owning'].map(
    (name) => all.find((one) => one.applicationName === name) as Listed,
  );
  const names = async (key: string) =>
    (await listed(here, key)).map(({ applicationName, isOwn }) => (isOwn ? 'own' : applicationName)).sort();
  expect(await names(reader.apiKey)).toEqual(['own', 'reading']);
  expect(await names(writer.apiKey)).toEqual(['own', 'writing']);
  expect(await names(stranger.apiKey)).toEqual(['own']);

  const mayNot = [
    [writer, owning],
    [writer, reading],
    [reader, writing],
    [stranger, writing],
  ] as const;
  for (const [who, whose] of mayNot) {
    for (const doors of [here, there]) {
      const refused = { status: 404, body: { code: 'not_found' } };
      expect(await signal('end', whose as Listed, who.apiKey, doors)).toMatchObject(refused);
      expect(await signal('cancel', whose as Listed, who.apiKey, doors)).toMatchObject(refused);
    }
  }
  for (const sessionId of [
    'ses_',
    'ses_0000000100000001',
    'ses_ffffffffffffffff',
    'ses_7fffffffffffffff',
    'ses_0000000000000001',
    `${owning?.sessionId}0`,
    'x',
    "'",
  ]) {
    expect((await signal('end', { sessionId })).status).toBe(404);
  }
  expect((await signal('end', reading as Listed, reader.apiKey)).status).toBe(200);
  expect((await signal('end', writing as Listed)).status).toBe(200);
  await eventually('only one is left', async () => (await listed(there)).length === 2);
});

it('lists WebSockets among the connections of the wire door, and ends them', async () => {
  const { id, apiKey } = organization;
  const webSocket = new WebSocket(`${there.httpUrl.replace('http:', 'ws:')}/v2`);
  clients.push({ end: async () => webSocket.terminate() } as unknown as pg.Client);
  await once(webSocket, 'open');
  const heard: Buffer[] = [];
  webSocket.on('message', (data: Buffer) => heard.push(data));
  webSocket.send(packet('', `\0\x03\0\0user\0${id}\0database\0${id}\0application_name\0socket\0\0`));
  webSocket.send(packet('p', `${apiKey}\0`));
  webSocket.send(queryMessage('BEGIN; SELECT pg_sleep(600)'));
  const socket = await sleeping('socket');
  expect(socket).toMatchObject({ door: 'wire', sourceIp: '127.0.0.1', statement: { sql: 'BEGIN; SELECT pg_sleep(600)' } });
  const closed = once(webSocket, 'close');
  expect((await signal('end', socket)).status).toBe(200);
  await closed;
  expect(Buffer.concat(heard).toString('latin1')).toContain('C57P01');
});

it('shows in pg_stat_activity the sessions of every process by the ids that they know, and nobody what another has told it', async () => {
  const [one, two] = [await open(here, 'one'), await open(there, 'two')];
  const other = await open(here, 'other', await here.signUp('Other'));
  const { id, apiKey } = organization;
  const made = await here.call('POST', '/api/keys', { key: apiKey, body: { name: 'reader', scope: 'read' } });
  const reader = await open(here, 'reader', { ...organization, apiKey: String(made.body.apiKey) });
  await one.query('CREATE TABLE processes (pid int4)');
  for (const client of [one, two]) await client.query('INSERT INTO processes SELECT pg_backend_pid()');
  const stored =
    'SELECT application_name AS name, state, client_port AS port, usename FROM pg_stat_activity JOIN processes USING (pid) ORDER BY 1';
  const portOf = (client: pg.Client) =>
    (client as unknown as { connection: { stream: { localPort: number } } }).connection.stream.localPort;
  for (const [client, states] of [
    [one, ['active', 'idle']],
    [two, ['idle', 'active']],
  ] as const) {
    expect((await client.query(stored)).rows).toEqual([
      { name: 'one', state: states[0], port: portOf(one), usename: id },
      { name: 'two', state: states[1], port: portOf(two), usename: id },
    ]);
  }
  const names = 'SELECT application_name AS name, pid FROM pg_stat_activity';
  const forged = JSON.stringify([{ p: 1, b: 0, a: null, o: null, s: 0, c: 0, n: 'forged', w: false, v: null, e: null }]);
  await one.query('BEGIN');
  await one.query("SELECT set_config('postern.sessions', $1, false)", [forged]);
  for (const client of [other, reader]) expect((await client.query(names)).rows).toHaveLength(1);
  expect((await two.query(names)).rows.map(({ name }) => name).sort()).toEqual(['one', 'two']);
  const hidden = `DO $$ BEGIN PERFORM pid FROM pg_stat_activity WHERE usename <> session_user; IF FOUND THEN RAISE 'others'; END IF; END $$`;
  await one.query(hidden);
  await one.query('ROLLBACK');
});

it('says which processes have not answered', async () => {
  const silent = new pg.Client(new URL(controlDatabase, inject('clusterUrl')).href);
  await silent.connect();
  await silent.query('SELECT pg_advisory_lock_shared($1, 77)', [ADVISORY_LOCKS.process]);
  await silent.query('INSERT INTO postern.processes VALUES (77)');
  const [list, ended] = await Promise.all([answeredBy(2), signal('end', { sessionId: 'ses_0000004d01020304' })]);
  expect(list).toMatchObject({ isComplete: false, processes: { asked: 3, answered: 2 } });
  expect(ended).toMatchObject({ status: 503, body: { code: 'not_ready' } });
  const { rows } = await silent.query('SELECT count(*)::int AS left FROM postern.process_requests');
  expect(rows).toEqual([{ left: 0 }]);
  await silent.end();
});

it('does not wait for processes that have ended, and asks others seldom', async () => {
  const third = await startTestService({ ...testVariables(), POSTERN_CONTROL_DATABASE: controlDatabase });
  const client = await open(third, 'third');
  const found = await session('third');
  expect((await answeredBy(3)).processes).toEqual({ asked: 3, answered: 3 });
  await third.close();
  expect((await signal('end', found)).status).toBe(404);
  await eventually('two are asked', async () => (await get(here)).body.processes.asked === 2);
  await client.end().catch(() => {});

  const asks = vi.spyOn(ProcessRequests.prototype, 'ask');
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: 30 }, () => get(here)));
  // At most four times a second; a timer may be a millisecond early.
  expect(asks.mock.calls.length).toBeLessThanOrEqual(1 + (performance.now() - startedAt) / 240);
  asks.mockRestore();
});
