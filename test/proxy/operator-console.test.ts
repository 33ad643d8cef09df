import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NO_LIMITS } from '../../src/catalog/limits.ts';
import { runAs, serverAccount } from '../../src/embedded/data-directory.ts';
import { freePort } from '../bench/child.ts';
import { requestCancel } from '../support/cancel-request.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const run = promisify(execFile);

const KEY = 'the key of the operators';

let service: TestService;
let acme: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_OPERATOR_KEY: KEY });
  acme = await service.signUp('Acme');
  other = await service.signUp('Other');
});
afterAll(() => service.close());

const OIDS: Readonly<Record<number, string>> = { 25: 'text', 23: 'int4', 20: 'int8', 1700: 'numeric' };

async function login(database: string, at: TestService = service, password = KEY): Promise<pg.Client> {
  const client = new pg.Client({ host: '127.0.0.1', port: at.wirePort, user: 'operator', database, password });
  client.on('error', () => {});
  await client.connect();
  return client;
}

/** Runs work with a session of an operator. */
async function asOperator<T>(database: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await login(database);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

const failure = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable(),
    (error: pg.DatabaseError) => error,
  );

/** Asks for the end of what a client runs. */
async function cancel(client: pg.Client): Promise<void> {
  const { processID, secretKey } = client as pg.Client & { readonly processID: number; readonly secretKey: number };
  const secret = Buffer.alloc(4);
  secret.writeInt32BE(secretKey);
  await requestCancel(service, processID, secret);
}

const PGBOUNCER_PROGRAM = '/usr/sbin/pgbouncer';

/** Debian's PgBouncer, with a database that nobody asks for. */
async function startPgBouncer(): Promise<{ readonly client: pg.Client; end(): Promise<void> }> {
  const account = await serverAccount();
  const scratch = await makeScratch();
  const [file, port] = [join(scratch.path, 'pgbouncer.ini'), await freePort()];
  const settings = ['listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir =', 'auth_type = any', 'admin_users = operator'];
  await writeFile(file, ['[databases]', 'some = host=127.0.0.1 port=1', '[pgbouncer]', ...settings, ''].join('\n'));
  if (account !== undefined) await chown(file, account.uid, account.gid);
  const child = spawn(PGBOUNCER_PROGRAM, [file], { ...runAs(account), stdio: 'ignore' });
  const ended = once(child, 'exit');
  let client: pg.Client | undefined;
  await eventually('PgBouncer answers', async () => {
    const next = new pg.Client({ host: '127.0.0.1', port, user: 'operator', database: 'pgbouncer' });
    client = await next.connect().then(
      () => next,
      () => undefined,
    );
    return client !== undefined;
  });
  return {
    client: client as unknown as pg.Client,
    async end() {
      await client?.end();
      child.kill('SIGKILL');
      await ended;
      await scratch.remove();
    },
  };
}

/** The columns of a table, with their types. */
const columnsOf = ({ fields }: pg.QueryResult) => fields.map(({ name, dataTypeID }) => `${name} ${OIDS[dataTypeID]}`).join(', ');
const typed = (type: string, names: string) =>
  names
    .split(' ')
    .map((name) => `${name} ${type}`)
    .join(', ');

const COUNTS = 'server_assignment_count xact_count query_count';
const TIMES = 'xact_time query_time wait_time';
const PARSES = 'client_parse_count server_parse_count bind_count';
const prefixed = (prefix: string, names: string) =>
  names
    .split(' ')
    .map((name) => prefix + name)
    .join(' ');
const SOCKET = [
  typed('text', 'type user database replication state addr'),
  typed('int4', 'port'),
  typed('text', 'local_addr'),
  typed('int4', 'local_port'),
  typed('text', 'connect_time request_time'),
  typed('int4', 'wait wait_us close_needed'),
  typed('text', 'ptr link'),
  typed('int4', 'remote_pid'),
  typed('text', 'tls application_name'),
  typed('int4', 'prepared_statements id'),
].join(', ');

/** As the source of PgBouncer 1.25.2 has them. */
const PGBOUNCER: Readonly<Record<string, string>> = {
  STATS: `database text, ${typed(
    'numeric',
    [prefixed('total_', `${COUNTS} received sent ${TIMES} ${PARSES}`), prefixed('avg_', `${COUNTS} recv sent ${TIMES} ${PARSES}`)].join(
      ' ',
    ),
  )}`,
  STATS_TOTALS: `database text, ${typed('numeric', `${COUNTS} bytes_received bytes_sent ${TIMES} ${PARSES}`)}`,
  STATS_AVERAGES: `database text, ${typed('numeric', `${COUNTS} bytes_received bytes_sent ${TIMES} ${prefixed('avg_', PARSES)}`)}`,
  TOTALS: 'name text, value numeric',
  POOLS: [
    typed('text', 'database user'),
    typed('int4', 'cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel sv_being_canceled'),
    typed('int4', 'sv_idle sv_used sv_tested sv_login maxwait maxwait_us'),
    typed('text', 'pool_mode load_balance_hosts'),
  ].join(', '),
  DATABASES: [
    typed('text', 'name host'),
    typed('int4', 'port'),
    typed('text', 'database force_user'),
    typed('int4', 'pool_size min_pool_size reserve_pool_size server_lifetime'),
    typed('text', 'pool_mode load_balance_hosts'),
    typed('int4', 'max_connections current_connections max_client_connections current_client_connections paused disabled'),
  ].join(', '),
  CLIENTS: SOCKET,
  SERVERS: SOCKET,
  USERS: [
    typed('text', 'name pool_size reserve_pool_size pool_mode'),
    typed('int4', 'max_user_connections current_connections max_user_client_connections current_client_connections'),
  ].join(', '),
  LISTS: 'list text, items int4',
  CONFIG: typed('text', 'key value default changeable'),
  STATE: typed('text', 'key value'),
  VERSION: typed('text', 'version'),
};

const OURS = ['ORGANIZATIONS', 'PINS', 'LIMITS', 'CLUSTERS', 'LOCKS', 'BACKUPS'];

describe('the login of operators', () => {
  it('needs the key, and tells others nothing', async () => {
    const client = await login('pgbouncer');
    expect((await client.query('SHOW VERSION')).rows).toEqual([
      { version: expect.stringMatching(/^PgBouncer 1\.25\.2 \(Postern \d+\.\d+\.\d+\)$/) },
    ]);
    await client.end();
    const withoutConsole = await startTestService();
    const elsewhere = await startTestService({ POSTERN_OPERATOR_KEY: KEY, POSTERN_OPERATOR_NETWORKS: '192.0.2.0/24' });
    try {
      const told: object[] = [];
      for (const [at, password] of [
        [service, 'wrong wrong wrong wrong'],
        [withoutConsole, KEY],
        [elsewhere, KEY],
      ] as const) {
        const { message, code, severity, hint, detail } = await failure(login('postern', at, password));
        told.push({ message, code, severity, hint, detail });
      }
      expect(told).toEqual(
        Array(3).fill({ message: 'password authentication failed for user "operator"', code: '28P01', severity: 'FATAL' }),
      );
      // To an organization the databases are like any other that there is not.
      const asked = ['postern', 'pgbouncer', 'nosuch'].map((database) => failure(service.connect(acme, { database })));
      expect(new Set((await Promise.all(asked)).map(({ code, message }) => `${code} ${message.replace(/".*"/, '')}`)).size).toBe(1);
    } finally {
      await withoutConsole.close();
      await elsewhere.close();
    }
  });

  it('counts wrong keys, and lets the right one in', async () => {
    const codes: (string | undefined)[] = [];
    for (let n = 0; n < 11; n += 1) codes.push((await failure(login('pgbouncer', service, `wrong key number ${n}`))).code);
    expect(codes.at(-1)).toBe('28000');
    await asOperator('pgbouncer', (client) => client.query('SHOW STATE'));
  });

  it('has room for eight, beside all clients', async () => {
    const small = await startTestService({ POSTERN_OPERATOR_KEY: KEY, POSTERN_CLIENTS_MAX: '1' });
    try {
      const organization = await small.signUp();
      const client = await small.connect(organization);
      const operators: pg.Client[] = [];
      while (operators.length < 8) operators.push(await login('postern', small));
      expect(await failure(login('postern', small))).toMatchObject({ code: '53300', message: 'too many sessions of operators' });
      await operators.pop()?.end();
      await eventually('there is room again', async () => {
        const next = await login('postern', small).catch(() => undefined);
        if (next !== undefined) operators.push(next);
        return next !== undefined;
      });
      await Promise.all([client, ...operators].map((one) => one.end()));
    } finally {
      await small.close();
    }
  });
});

describe('SHOW', () => {
  it('has the columns of PgBouncer 1.25.2 by name, order and type, in both databases', async () => {
    for (const database of ['pgbouncer', 'postern']) {
      await asOperator(database, async (client) => {
        for (const [name, columns] of Object.entries(PGBOUNCER)) expect(columnsOf(await client.query(`SHOW ${name};`)), name).toBe(columns);
      });
    }
  });

  it.skipIf(!existsSync(PGBOUNCER_PROGRAM))('has in common what an older PgBouncer has', async () => {
    const old = await startPgBouncer();
    try {
      for (const name of ['STATS', 'STATS_TOTALS', 'POOLS', 'DATABASES', 'CLIENTS', 'SERVERS', 'LISTS', 'CONFIG', 'VERSION']) {
        const theirs = (await old.client.query(`SHOW ${name}`)).fields;
        const ours = (await asOperator('pgbouncer', (client) => client.query(`SHOW ${name}`))).fields;
        const byName = new Map(ours.map(({ name: column, dataTypeID }) => [column, dataTypeID]));
        const shared = theirs.filter(({ name: column }) => byName.has(column));
        expect(shared.length, name).toBeGreaterThan(0);
        for (const { name: column, dataTypeID } of shared) expect(byName.get(column), `${name}.${column}`).toBe(dataTypeID);
      }
    } finally {
      await old.end();
    }
  });

  it('has more in postern only', async () => {
    await asOperator('postern', async (client) => {
      for (const name of OURS) expect((await client.query(`SHOW ${name}`)).fields.length, name).toBeGreaterThan(2);
    });
    await asOperator('pgbouncer', async (client) => {
      for (const command of [...OURS.map((name) => `SHOW ${name}`), 'SHOW POOLS LIMIT 1']) {
        expect(await failure(client.query(command)), command).toMatchObject({
          code: '42601',
          hint: 'Connect to the database postern for that.',
        });
      }
    });
  });

  it('counts what organizations do', async () => {
    const client = await service.connect(acme);
    const before = await asOperator('pgbouncer', (console) => console.query('SHOW STATS_TOTALS'));
    for (let n = 0; n < 5; n += 1) await client.query('SELECT 1');
    await client.query('BEGIN');
    await client.query('SELECT 2');
    await client.query('COMMIT');
    await service.query(acme, 'SELECT 3');
    const countsOf = ({ rows }: pg.QueryResult) => rows.find(({ database }) => database === acme.id) ?? {};
    const after = await asOperator('pgbouncer', (console) => console.query('SHOW STATS_TOTALS'));
    const more = (name: string) => Number(countsOf(after)[name]) - Number(countsOf(before)[name] ?? 0);
    expect([more('query_count'), more('xact_count')]).toEqual([9, 7]);
    expect(more('bytes_received')).toBeGreaterThan(100);
    expect(more('query_time')).toBeGreaterThan(0);
    expect(more('server_assignment_count')).toBeGreaterThan(0);
    await client.end();
  });

  it('counts statements that are prepared: by clients, and on the server', async () => {
    const organization = await service.signUp('Prepares');
    const clients = [await service.connect(organization), await service.connect(organization)];
    // One after the other, on the same backend: the second one's Parse needs none there.
    for (const client of clients)
      for (const value of [1, 2, 3]) await client.query({ name: 'own', text: 'SELECT $1::int4 AS value', values: [value] });
    const { rows } = await asOperator('postern', (console) => console.query(`SHOW STATS_TOTALS LIKE '${organization.id}'`));
    expect(rows).toMatchObject([{ client_parse_count: '2', server_parse_count: '1', bind_count: '6' }]);
    await Promise.all(clients.map((client) => client.end()));
  });

  it('has the clients, their backends and pins', async () => {
    const client = await service.connect(acme, { application_name: 'report' });
    await client.query('BEGIN; CREATE TEMPORARY TABLE t (a int)');
    await asOperator('postern', async (console) => {
      const [shown] = (await console.query("SHOW CLIENTS LIKE 'report'")).rows;
      expect(shown).toMatchObject({
        type: 'C',
        user: acme.id,
        database: acme.id,
        state: 'active',
        addr: '127.0.0.1',
        application_name: 'report',
      });
      expect(shown).toMatchObject({
        local_port: service.wirePort,
        ptr: expect.stringMatching(/^ses_[0-9a-f]{16}$/),
        id: expect.any(Number),
      });
      const servers = (await console.query(`SHOW SERVERS LIKE '${acme.id}'`)).rows;
      expect(servers).toContainEqual(expect.objectContaining({ type: 'S', state: 'active', remote_pid: Number(shown.link) }));
      const pins = (await console.query(`SHOW PINS LIKE '${acme.id}' ORDER BY reason`)).rows;
      expect(pins).toContainEqual(expect.objectContaining({ reason: 'transaction', ptr: shown.ptr }));
      const [pool] = (await console.query(`SHOW POOLS LIKE '${acme.id}'`)).rows;
      expect(pool).toMatchObject({ cl_waiting: 0, sv_active: 1, pool_mode: 'transaction' });
      const [organization] = (await console.query(`SHOW ORGANIZATIONS LIKE '${acme.id}'`)).rows;
      expect(organization).toMatchObject({ name: 'Acme', status: 'active', paused: 0 });
    });
    await client.end();
  });

  it('shows the limits that organizations have of their own', async () => {
    const { operator } = service.service;
    const origin = { surface: 'admin', sourceIp: '127.0.0.1' } as const;
    await operator.setLimits(acme.id, { diskBytes: 2 ** 40, sessions: 7, requestsPerSecond: 5 }, origin);
    await asOperator('postern', async (client) => {
      const own = (await client.query(`SHOW LIMITS LIKE '${acme.id}'`)).rows;
      expect(own).toMatchObject([
        { limit: 'disk', value: '1099511627776', organization: acme.id },
        { limit: 'sessions', value: '7', used: expect.stringMatching(/^\d+$/) },
        { limit: 'requests-per-second', value: '5', used: null },
      ]);
      expect((await client.query("SHOW LIMITS LIKE 'POSTERN_CLIENTS_PER_TENANT'")).rows).toMatchObject([{ organization: null }]);
      const [database] = (await client.query(`SHOW DATABASES LIKE '${acme.id}'`)).rows;
      expect(database).toMatchObject({ max_client_connections: 7 });
    });
    await operator.setLimits(acme.id, NO_LIMITS, origin);
  });

  it('sorts, chooses and limits rows', async () => {
    await asOperator('postern', async (client) => {
      const names = async (sql: string) => (await client.query(sql)).rows.map(({ name }) => name);
      expect(await names('SHOW ORGANIZATIONS ORDER BY name')).toEqual(['Acme', 'Other', 'Prepares']);
      expect(await names('SHOW ORGANIZATIONS ORDER BY name DESC LIMIT 1')).toEqual(['Prepares']);
      expect(await names("SHOW ORGANIZATIONS LIKE '%the_'")).toEqual(['Other']);
      expect(await names("show organizations like 'A\\_me'")).toEqual([]);
      expect(await names('SHOW ORGANIZATIONS LIMIT 0')).toEqual([]);
      expect(await failure(client.query('SHOW ORGANIZATIONS ORDER BY nosuch'))).toMatchObject({ code: '42703' });
      expect(await failure(client.query('SHOW ORGANIZATIONS LIMIT 1000001'))).toMatchObject({
        code: '22023',
        message: 'LIMIT is a whole number from 0 to 1000000',
      });
    });
  });

  it('waits for no lock, and tells who does', async () => {
    const [holder, waiter] = [await service.connect(acme), await service.connect(acme)];
    await holder.query('CREATE TABLE locked (a int)');
    await holder.query('BEGIN; LOCK TABLE locked');
    const waits = waiter.query('SELECT * FROM locked');
    await asOperator('postern', async (client) => {
      await eventually('the lock is shown', async () => {
        const { rows } = await client.query(`SHOW LOCKS LIKE '${acme.id}'`);
        return rows.some(({ mode, locktype, blocked_by }) => mode === 'AccessShareLock' && locktype === 'relation' && blocked_by !== '');
      });
    });
    await holder.query('COMMIT');
    await waits;
    await Promise.all([holder.end(), waiter.end()]);
  });

  it('shows settings without their secrets', async () => {
    const { rows } = await asOperator('pgbouncer', (client) => client.query('SHOW CONFIG'));
    const byKey = new Map(rows.map(({ key, value }) => [key, value]));
    expect(byKey.get('max_client_conn')).toBe('10000');
    expect([byKey.get('POSTERN_SECRET'), byKey.get('POSTERN_OPERATOR_KEY'), byKey.get('DATABASE_URL')]).toEqual(['***', '***', '***']);
    expect(JSON.stringify(rows)).not.toContain(KEY);
  });
});

describe('commands', () => {
  it('pause and resume an organization', async () => {
    await asOperator('postern', async (console) => {
      await console.query(`PAUSE ${acme.id}`);
      expect((await console.query(`SHOW DATABASES LIKE '${acme.id}'`)).rows).toMatchObject([{ paused: 1, disabled: 0 }]);
      const client = await service.connect(acme);
      let isAnswered = false;
      const waits = client.query('SELECT 1').then(() => {
        isAnswered = true;
      });
      await eventually('the client waits', async () => (await console.query(`SHOW POOLS LIKE '${acme.id}'`)).rows[0]?.cl_waiting === 1);
      expect((await service.query(other, 'SELECT 1')).status).toBe(200);
      await console.query(`PAUSE ${acme.id}`);
      expect(isAnswered).toBe(false);
      await console.query(`RESUME ${acme.id}`);
      await waits;
      expect(await failure(console.query(`RESUME ${acme.id}`))).toMatchObject({ code: '55000' });
      await console.query(`PAUSE ${acme.id}`);
      const { body: refused } = await service.call('POST', '/api/clones', { key: acme.apiKey, body: {} });
      expect(refused).toMatchObject({ code: 'organization_busy', detail: `organization "${acme.id}" is paused by an operator` });
      await console.query(`RESUME ${acme.id}`);
      await console.query('PAUSE');
      expect((await console.query('SHOW STATE')).rows).toContainEqual({ key: 'paused', value: 'yes' });
      await console.query('RESUME');
      expect((await client.query('SELECT 2')).rows).toHaveLength(1);
      await client.end();
    });
    const { body } = await service.call('GET', '/api/audit', { key: acme.apiKey });
    const actions = body.data.map(({ action }: { action: string }) => action);
    expect(actions).toContain('organization.paused');
    expect(actions).toContain('organization.unpaused');
  });

  it('wait for transactions when they pause, until they are canceled', async () => {
    const client = await service.connect(acme);
    await client.query('BEGIN; SELECT 1');
    const console = await login('postern');
    const paused = console.query(`PAUSE ${acme.id}`);
    const isPaused = async () =>
      (await asOperator('postern', (another) => another.query(`SHOW DATABASES LIKE '${acme.id}'`))).rows[0]?.paused === 1;
    await eventually('it is paused', isPaused);
    const canceled = failure(paused);
    await cancel(console);
    expect(await canceled).toMatchObject({ code: '57014' });
    expect(await isPaused()).toBe(true);
    await client.query('COMMIT');
    await console.query(`PAUSE ${acme.id}`);
    await console.query(`RESUME ${acme.id}`);
    await Promise.all([client.end(), console.end()]);
  });

  it('end sessions: one by its number or id, all of an organization', async () => {
    const clients = await Promise.all(['one', 'two', 'three'].map((name) => service.connect(acme, { application_name: name })));
    const ended = clients.map(
      (client) => new Promise<string | undefined>((resolve) => client.once('error', (error: pg.DatabaseError) => resolve(error.code))),
    );
    await asOperator('postern', async (console) => {
      const shown = async (name: string) => (await console.query(`SHOW CLIENTS LIKE '${name}'`)).rows[0];
      await console.query(`KILL_CLIENT ${(await shown('one')).id}`);
      expect(await ended[0]).toBe('57P01');
      await console.query(`KILL_CLIENT ${(await shown('two')).ptr}`);
      expect(await ended[1]).toBe('57P01');
      expect(await failure(console.query('KILL_CLIENT 1'))).toMatchObject({ code: '42704' });
      expect(await failure(console.query('KILL_CLIENT 4294967296'))).toMatchObject({ code: '22023' });
      await console.query(`KILL ${acme.id}`);
      expect(await ended[2]).toBe('57P01');
      expect((await console.query(`SHOW DATABASES LIKE '${acme.id}'`)).rows).toMatchObject([{ paused: 1 }]);
      await console.query(`RESUME ${acme.id}`);
    });
  });

  it('disable, enable and reconnect an organization', async () => {
    await asOperator('postern', async (console) => {
      await console.query(`DISABLE ${other.id}`);
      expect(await failure(service.connect(other))).toMatchObject({ code: '28000' });
      expect((await console.query(`SHOW DATABASES LIKE '${other.id}'`)).rows).toMatchObject([{ disabled: 1 }]);
      await console.query(`ENABLE "${other.id}"`);
      const pid = async () => (await service.query(other, 'SELECT pg_backend_pid() AS pid')).body.rows[0].pid;
      const before = await pid();
      expect(await pid()).toBe(before);
      await console.query(`RECONNECT ${other.id}`);
      expect(await pid()).not.toBe(before);
      await console.query('RECONNECT; RELOAD');
      for (const verb of ['PAUSE', 'RESUME', 'RECONNECT', 'DISABLE', 'ENABLE', 'KILL']) {
        expect(await failure(console.query(`${verb} nosuch`)), verb).toMatchObject({ code: '3D000' });
      }
    });
  });

  it('change settings until the service is started again', async () => {
    await asOperator('postern', async (console) => {
      const shown = async (key: string) => (await console.query(`SHOW CONFIG LIKE '${key}'`)).rows[0];
      await console.query('SET POSTERN_STATEMENT_TIMEOUT_MS = 50');
      expect(await service.query(acme, 'SELECT pg_sleep(3600)')).toMatchObject({ status: 504, body: { code: 'statement_timeout' } });
      expect(await shown('POSTERN_STATEMENT_TIMEOUT_MS')).toMatchObject({ value: '50', default: '30000', changeable: 'yes' });
      await console.query('SET POSTERN_STATEMENT_TIMEOUT_MS = DEFAULT');
      expect((await shown('POSTERN_STATEMENT_TIMEOUT_MS'))?.value).toBe('30000');

      const client = await service.connect(acme);
      await console.query("SET query_timeout TO '0.05'");
      expect(await shown('query_timeout')).toMatchObject({ value: '0.05', default: '0', changeable: 'yes' });
      expect((await shown('POSTERN_WIRE_STATEMENT_TIMEOUT_MS'))?.value).toBe('50');
      expect(await failure(client.query('SELECT pg_sleep(3600)'))).toMatchObject({ code: '57014' });
      await console.query('SET query_timeout = default');
      await client.end();

      await console.query('SET POSTERN_SIGNUP = closed');
      const signUp = () => service.call('POST', '/api/auth/signup', { body: { orgName: 'New', email: 'new@acme.test' } });
      expect(await signUp()).toMatchObject({ status: 403, body: { code: 'signup_closed' } });
      await console.query('SET POSTERN_SIGNUP = open');
      expect((await signUp()).status).toBe(201);

      await console.query('SET POSTERN_SLOW_STATEMENT_MS = 1');
      await service.query(acme, 'SELECT pg_sleep(0.002)');
      await eventually('it is known as slow', () => service.observations.some(({ name }) => name === 'statement.slow'));
      await console.query('SET POSTERN_SLOW_STATEMENT_MS = 0');
    });
  });

  it('change no setting to what it may not be, and not those that are read at the start', async () => {
    await asOperator('pgbouncer', async (console) => {
      const refused: Readonly<Record<string, readonly [code: string, hint: string | undefined]>> = {
        'SET POSTERN_QUEUE_TIMEOUT_MS = 0': ['22023', 'It must be a whole number from 1 to 2147483647.'],
        'SET POSTERN_QUEUE_TIMEOUT_MS = -5': ['22023', 'It must be a whole number from 1 to 2147483647.'],
        "SET query_wait_timeout = '1 min'": [
          '22023',
          'It is given in seconds: POSTERN_QUEUE_TIMEOUT_MS must be a whole number from 1 to 2147483647.',
        ],
        'SET POSTERN_SIGNUP = maybe': ['22023', 'It must be one of open, invite, closed.'],
        'SET POSTERN_OPERATOR_KEY = "another key of operators"': [
          '55P02',
          'It is read when the service starts. SHOW CONFIG says which may change.',
        ],
        'SET pool_mode = session': ['55P02', 'It is read when the service starts. SHOW CONFIG says which may change.'],
        'SET constructor = 5': ['42704', undefined],
      };
      for (const [command, [code, hint]] of Object.entries(refused))
        expect(await failure(console.query(command)), command).toMatchObject({ code, hint });
      const { rows } = await console.query('SHOW CONFIG');
      const changeable = (key: string) => rows.find((row) => row.key === key)?.changeable;
      expect(['POSTERN_WORKERS', 'max_client_conn', 'pool_mode', 'DATABASE_URL'].map(changeable)).toEqual(['no', 'no', 'no', 'no']);
      expect(['POSTERN_QUEUE_TIMEOUT_MS', 'query_wait_timeout', 'server_idle_timeout'].map(changeable)).toEqual(['yes', 'yes', 'yes']);
    });
  });

  it('are in an audit log of their own, and so are logins', async () => {
    await asOperator('postern', (console) => console.query("RELOAD; SET POSTERN_DRAIN_MS = '0'"));
    const { audit } = service.service.router.catalog;
    const [set, reload, opened] = (await audit.list('operator', { limit: 3 })).data;
    expect([set?.statement?.sql, reload?.statement?.sql, opened?.action]).toEqual(["SET POSTERN_DRAIN_MS = '0'", 'RELOAD', 'login']);
    expect(opened).toMatchObject({ surface: 'admin', sourceIp: '127.0.0.1' });
    // Of the wrong keys before, those that were looked at.
    expect((await audit.list('operator', { action: 'login.failed', limit: 100 })).data.length).toBeGreaterThan(5);
    expect(await audit.verify('operator')).toMatchObject({ ok: true });
    expect(JSON.stringify((await audit.list('operator', { limit: 100 })).data)).not.toContain(KEY);
  });

  it('are the only ones', async () => {
    await asOperator('pgbouncer', async (client) => {
      for (const sql of [
        'SELECT * FROM pg_class',
        'SELECT 2',
        'DROP TABLE x',
        'SHOW NOSUCH',
        'SHOW STATS foo',
        'KILL',
        "PAUSE 'a",
        'SHOW',
        'SHOW constructor',
      ]) {
        expect(await failure(client.query(sql)), sql).toMatchObject({ code: '42601', severity: 'ERROR' });
      }
      expect(await failure(client.query('SELECT * FROM x'))).toMatchObject({ hint: 'SHOW HELP lists the commands.' });
      expect(await failure(client.query('COPY x FROM STDIN'))).toMatchObject({ code: '0A000' });
      expect(await failure(client.query("SET client_encoding = 'LATIN1'"))).toMatchObject({ code: '22023' });
      expect(await failure(client.query('SET max_client_conn = 5'))).toMatchObject({ code: '55P02' });
      expect(await failure(client.query('SET nosuch = 5'))).toMatchObject({ code: '42704' });
      await client.query("SET client_encoding TO 'UTF8'; SET extra_float_digits = 3; -- ping");
      expect((await client.query('-- ping')).rows).toEqual([]);
      expect((await client.query('select 1')).rows).toEqual([{ '?column?': 1 }]);
      expect((await client.query('SELECT version()')).rows[0].version).toMatch(/^PgBouncer/);
      const results = (await client.query('SHOW VERSION; SHOW STATE;')) as unknown as pg.QueryResult[];
      expect(results.map(({ rowCount, command }) => [command, rowCount])).toEqual([
        ['SHOW', null],
        ['SHOW', null],
      ]);
      await client.query('BEGIN');
      await failure(client.query('SELECT 2'));
      expect(await failure(client.query('SHOW STATE'))).toMatchObject({ code: '25P02' });
      await client.query('ROLLBACK');
      await client.query('SHOW STATE');
    });
  });

  it('are no larger than they need to be', async () => {
    const client = await login('pgbouncer');
    expect(await failure(client.query(`-- ${'x'.repeat(20_000)}`))).toMatchObject({ code: '54000', severity: 'FATAL' });
  });
});

describe('exporters', () => {
  /** What each asks, and what it cannot do without. All of them use the simple protocol. */
  const ASKED: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
    'prometheus-community/pgbouncer_exporter': {
      '-- ping': [],
      'SHOW VERSION;': ['version'],
      'SHOW LISTS;': ['list', 'items'],
      'SHOW CONFIG;': ['key', 'value', 'default', 'changeable'],
      'SHOW CLIENTS;': ['database', 'user', 'state', 'application_name'],
      'SHOW STATS_TOTALS;': [
        'database',
        'xact_count',
        'query_count',
        'bytes_received',
        'bytes_sent',
        'xact_time',
        'query_time',
        'wait_time',
      ],
      'SHOW POOLS;': ['database', 'user', 'cl_active', 'cl_waiting', 'sv_active', 'sv_idle', 'sv_used', 'sv_tested', 'sv_login', 'maxwait'],
      'SHOW DATABASES;': [
        'name',
        'host',
        'port',
        'database',
        'force_user',
        'pool_mode',
        'pool_size',
        'reserve_pool_size',
        'paused',
        'disabled',
      ],
    },
    Telegraf: { 'SHOW STATS': ['database', 'avg_recv', 'avg_sent'], 'SHOW POOLS': ['database', 'user', 'pool_mode'] },
    netdata: {
      'SHOW VERSION;': ['version'],
      'SHOW CONFIG;': ['key', 'value'],
      'SHOW DATABASES;': ['name', 'database', 'max_connections', 'current_connections', 'paused', 'disabled'],
      'SHOW STATS;': ['database', 'total_xact_count', 'total_received', 'total_xact_time', 'avg_xact_time', 'avg_query_time'],
      'SHOW POOLS;': ['database', 'cl_active', 'cl_waiting', 'sv_active', 'sv_idle', 'maxwait', 'maxwait_us'],
    },
    Datadog: {
      'SHOW STATS': ['database', 'total_xact_count', 'total_query_time', 'avg_xact_count', 'avg_wait_time', 'avg_recv', 'avg_sent'],
      'SHOW POOLS': ['database', 'user', 'cl_active', 'sv_login', 'maxwait', 'maxwait_us'],
      'SHOW DATABASES': ['name', 'pool_size', 'max_connections', 'current_connections'],
      'SHOW CONFIG': ['key', 'value'],
      'SHOW VERSION': ['version'],
    },
  };

  it('get what they ask', async () => {
    await service.query(acme, 'SELECT 1');
    await asOperator('pgbouncer', async (client) => {
      for (const [exporter, commands] of Object.entries(ASKED)) {
        for (const [command, wanted] of Object.entries(commands)) {
          const { fields } = await client.query(command);
          expect(
            fields.map(({ name }) => name),
            `${exporter}: ${command}`,
          ).toEqual(expect.arrayContaining([...wanted]));
        }
      }
      // Telegraf reads every column of STATS but these as a whole number.
      const [row] = (await client.query('SHOW STATS')).rows;
      for (const [name, value] of Object.entries(row)) if (name !== 'database') expect(value, name).toMatch(/^\d+$/);
      // Both become one metric of the exporter.
      expect((await client.query('SHOW DATABASES')).fields.map(({ name }) => name)).not.toContain('reserve_pool');
    });
  });
});

describe('clients of the console', () => {
  it('pg: the extended protocol, in text and binary', async () => {
    await asOperator('postern', async (client) => {
      expect((await client.query({ name: 'version', text: 'SHOW VERSION' })).rows).toHaveLength(1);
      expect((await client.query({ name: 'version', text: 'SHOW VERSION' })).rows).toHaveLength(1);
      expect(await failure(client.query('SHOW STATE', [1]))).toMatchObject({ code: '08P01' });
      expect(await failure(client.query({ name: 'two', text: 'SHOW STATE; SHOW STATE' }))).toMatchObject({ code: '42601' });
      // biome-ignore lint/suspicious/noExplicitAny: pg has no types for this
      const binary: any = { name: 'limits', text: 'SHOW LIMITS', binary: true };
      const limits = (await client.query(binary)).rows;
      expect(limits).toContainEqual(expect.objectContaining({ limit: 'POSTERN_CLIENTS_MAX', value: '10000' }));
    });
  });

  it('postgres.js', async () => {
    const sql = postgres({
      host: '127.0.0.1',
      port: service.wirePort,
      user: 'operator',
      database: 'postern',
      password: KEY,
      fetch_types: false,
      max: 1,
    });
    const rows = await sql`SHOW STATS`;
    expect(rows.columns.map(({ name }) => name)).toEqual(PGBOUNCER.STATS?.split(', ').map((column) => column.split(' ')[0]));
    expect(await sql.unsafe('SHOW STATE').simple()).toHaveLength(3);
    await sql.end();
  });

  const environment = () => ({
    ...process.env,
    PGPASSWORD: KEY,
    PGHOST: '127.0.0.1',
    PGPORT: String(service.wirePort),
    PGUSER: 'operator',
    PSQLRC: '/dev/null',
  });

  it('psql 15', async () => {
    const { stdout, stderr } = await run('psql', ['-XAtq', '-c', 'SHOW HELP', '-c', 'SHOW STATE', 'postern'], { env: environment() });
    expect(stdout).toBe('active|yes\npaused|no\nsuspended|no\n');
    expect(stderr).toContain('SHOW ORGANIZATIONS|PINS|LIMITS|CLUSTERS|LOCKS|BACKUPS');
  });

  it.skipIf(!existsSync('/usr/lib/python3/dist-packages/psycopg2/__init__.py'))('psycopg2, with the columns by name and type', async () => {
    const program = `
import psycopg2
connection = psycopg2.connect(dbname='pgbouncer')
connection.set_session(autocommit=True)
cursor = connection.cursor()
for name in ${JSON.stringify(Object.keys(PGBOUNCER))}:
    cursor.execute('SHOW ' + name)
    print(name, ', '.join('%s %s' % (c.name, {25: 'text', 23: 'int4', 20: 'int8', 1700: 'numeric'}[c.type_code]) for c in cursor.description), sep=': ')
`;
    const { stdout } = await run('/usr/bin/python3', ['-c', program], { env: environment() });
    const lines = Object.entries(PGBOUNCER).map(([name, columns]) => `${name}: ${columns}\n`);
    expect(stdout).toBe(lines.join(''));
  });
});
