import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/* Every setting that a session may change: on its next backend, for the next session, and over HTTP. PostgreSQL itself says which there are. */

interface Setting {
  readonly name: string;
  /** What `SHOW` says in a new session. */
  readonly shown: string;
  readonly vartype: string;
  readonly unit: string | null;
  readonly setting: string;
  readonly min: number;
  readonly max: number;
  readonly enumvals: readonly string[] | null;
}

const SETTINGS = `SELECT name, current_setting(name) AS shown, vartype, unit, setting, min_val::float8 AS min, max_val::float8 AS max, enumvals
  FROM pg_settings WHERE context = 'user' AND name NOT IN ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
  AND strpos(name, '.') = 0`;

/** Values of strings, which the server does not list. */
const STRINGS: Readonly<Record<string, string>> = {
  DateStyle: 'German, DMY',
  TimeZone: 'Asia/Tokyo',
  application_name: 'a settings test',
  client_encoding: 'LATIN1',
  createrole_self_grant: 'set',
  default_table_access_method: 'heap',
  default_tablespace: 'pg_default',
  default_text_search_config: 'pg_catalog.simple',
  lc_monetary: 'C',
  lc_numeric: 'POSIX',
  lc_time: 'C',
  local_preload_libraries: 'none',
  restrict_nonsystem_relation_kind: 'view',
  search_path: 'pg_catalog',
  temp_tablespaces: 'pg_default',
  timezone_abbreviations: 'India',
};

/** Over a Unix socket, as to Postern's backends, these have no effect. */
const OF_SOCKETS = new Set(['tcp_keepalives_count', 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_user_timeout']);

/** A value other than the one of a new session, as it is written in SET. */
function anotherValue({ name, setting, vartype, unit, min, max, enumvals }: Setting): string {
  if (vartype === 'bool') return setting === 'on' ? 'off' : 'on';
  if (vartype === 'enum') return enumvals?.find((value) => value !== setting) ?? setting;
  if (vartype === 'string') return STRINGS[name] ?? `no value is known for ${name}`;
  // None ends what the test itself does.
  if (unit === 'ms' && vartype === 'integer') return '123456';
  const next = Number(setting) + (vartype === 'real' ? 0.25 : 1);
  return String(next <= max ? next : min);
}

const servers = [
  { version: 18, start: async () => ({ ...inject('cluster'), stop: async () => {} }) },
  ...(hasPostgres15 ? [{ version: 15, start: startPostgres15 }] : []),
];
const places = servers.flatMap((server) => PLACEMENTS.map((placement) => ({ ...server, placement })));

describe.each(places)('PostgreSQL $version, placement $placement', ({ version, start, placement }) => {
  let server: Awaited<ReturnType<typeof start>>;
  let service: TestService;
  let organization: TestOrganization;
  let settings: readonly Setting[];
  let direct: pg.Client;
  beforeAll(async () => {
    server = await start();
    service = await startTestService({
      DATABASE_URL: serverUrl(server),
      POSTERN_BACKENDS_PER_TENANT: '2',
      POSTERN_PLACEMENT: placement,
    });
    organization = await service.signUp();
    direct = new pg.Client(server);
    await direct.connect();
    const client = await service.connect(organization);
    settings = (await client.query(SETTINGS)).rows;
    await client.end();
  });
  afterAll(async () => {
    await direct.end();
    await service.close();
    await server.stop();
  });

  const show = async (client: pg.Client, name: string) => (await client.query('SELECT current_setting($1) AS v', [name])).rows[0].v;
  /** What a direct session shows after this. */
  const shownDirectly = async (name: string, change: string) => {
    try {
      await direct.query(`BEGIN; ${change}`);
      return await show(direct, name);
    } finally {
      await direct.query('ROLLBACK');
    }
  };

  it('finds the settings that sessions may change', () => {
    expect(settings.length).toBeGreaterThan(version === 15 ? 120 : 130);
  });

  it('has each follow its session, to every backend and to no other session', async () => {
    const wrong: string[] = [];
    const check = (what: string, seen: string, wanted: string) => {
      if (seen !== wanted) wrong.push(`${what}: ${seen} instead of ${wanted}`);
    };
    for (const setting of settings) {
      const { name, shown } = setting;
      const written = `'${anotherValue(setting)}'`;
      // In the schema placement a session's path shows the organization's schema, and is compared by other tests.
      if (OF_SOCKETS.has(name) || (name === 'search_path' && placement === 'schema')) continue;
      const [own, other] = await Promise.all([service.connect(organization), service.connect(organization)]);
      try {
        const wanted = await shownDirectly(name, `SET ${name} = ${written}`);
        await own.query(`BEGIN; SET LOCAL ${name} = ${written}`);
        check(`${name}, local`, await show(own, name), wanted);
        await own.query('COMMIT');
        check(`${name} after a local one`, await show(own, name), shown);
        await own.query(`BEGIN; SET ${name} = ${written}; ROLLBACK`);
        check(`${name}, rolled back`, await show(own, name), shown);
        await own.query(`SET ${name} = ${written}`);
        check(name, await show(own, name), wanted);
        await other.query('BEGIN');
        check(`${name}, the next session`, await show(other, name), shown);
        check(`${name}, on the next backend`, await show(own, name), wanted);
        await own.query(`RESET ${name}`);
        check(`${name}, reset`, await show(own, name), shown);
        await own.query(`BEGIN; SET ${name} = ${written}; COMMIT`);
        await other.query('COMMIT');
        await own.end();
        check(`${name} after its session`, await show(other, name), shown);
      } catch (error) {
        wrong.push(`${name}: ${String(error)}`);
      } finally {
        await Promise.all([own.end(), other.end()]);
      }
    }
    expect(wrong).toEqual([]);
  });

  it('lets a session with temp_buffers keep its backend, because others may have had temporary tables', async () => {
    const temporary = 'CREATE TEMP TABLE gone AS SELECT 1 AS a; DROP TABLE gone';
    organization = await service.signUp();
    const connect = (options?: string) => service.connect(organization, options === undefined ? {} : { options });
    const other = await connect();
    await other.query(temporary);
    const started = await connect('-c temp_buffers=3MB');
    expect(await show(started, 'temp_buffers')).toBe('3MB');
    await started.end();
    const [own, another] = await Promise.all([connect(), connect()]);
    await other.query('BEGIN');
    await own.query("SET temp_buffers = '4MB'");
    // It would take the backend of the idle session, if that were not kept.
    const begun = another.query('BEGIN');
    await other.query('SELECT 1');
    await other.query('COMMIT');
    await begun;
    expect(await show(own, 'temp_buffers')).toBe('4MB');
    await own.query(temporary);
    await own.end();
    expect(await show(other, 'temp_buffers')).toBe('8MB');
    await Promise.all([other.end(), another.end()]);
  });

  it('lends a session that sets temp_buffers no backend on which others have had temporary tables', async () => {
    organization = await service.signUp();
    const others = await Promise.all([service.connect(organization), service.connect(organization)]);
    // A rolled back one leaves the buffers, but not the schema that tells of it.
    const haveTemporary = async (end: string) => {
      for (const other of others) await other.query('BEGIN');
      for (const other of others) await other.query(`CREATE TEMP TABLE gone AS SELECT 1 AS a; DROP TABLE gone; ${end}`);
    };
    for (const end of ['COMMIT', 'ROLLBACK']) {
      await haveTemporary(end);
      const later = await service.connect(organization);
      await later.query({ text: "SET temp_buffers = '3MB'", ...(end === 'COMMIT' ? {} : { values: [] }) });
      expect(await show(later, 'temp_buffers')).toBe('3MB');
      await expect(later.query("SET temp_buffers = 'x'")).rejects.toMatchObject({ code: '22023' });
      await later.end();
      await haveTemporary(end);
      const started = await service.connect(organization, { options: '-c temp_buffers=5MB' });
      expect(await show(started, 'temp_buffers')).toBe('5MB');
      await started.end();
    }
    await Promise.all(others.map((other) => other.end()));
  });

  it('tells a session of a setting that the server refuses by now, and goes on without it', async () => {
    organization = await service.signUp();
    const [own, other, another] = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
    if (own === undefined || other === undefined || another === undefined) throw new Error('not connected');
    const notices: string[] = [];
    own.on('notice', ({ severity, code, message, detail }) => notices.push(`${severity} ${code} ${message}: ${detail}`));
    await own.query('CREATE TEXT SEARCH CONFIGURATION mine (COPY = pg_catalog.simple)');
    await own.query("SET default_text_search_config = 'mine'; SET work_mem = '5MB'; SET my.empty = ''");
    await other.query('DROP TEXT SEARCH CONFIGURATION mine');
    // Another backend than before: on the first one, PostgreSQL itself keeps the value.
    await Promise.all([own, other].map((client) => client.query('BEGIN')));
    await own.query('COMMIT');
    await another.query('BEGIN');
    await other.query('COMMIT');
    expect(await show(own, 'work_mem')).toBe('5MB');
    expect(await show(own, 'my.empty')).toBe('');
    expect(await show(own, 'default_text_search_config')).toBe(await show(another, 'default_text_search_config'));
    expect(notices).toEqual([
      'WARNING 22023 the setting "default_text_search_config" has been reset: ' +
        'invalid value for parameter "default_text_search_config": "public.mine"',
    ]);
    await Promise.all([own, other, another].map((client) => client.end()));
  });

  it('has none follow a call over HTTP to the next', async () => {
    const wrong: string[] = [];
    for (const setting of settings) {
      const { name } = setting;
      if (name === 'search_path' && placement === 'schema') continue;
      const shown = async () => (await service.query(organization, `SELECT current_setting('${name}') AS v`)).body.rows?.[0].v;
      const before = await shown();
      await service.query(organization, `SET ${name} = '${anotherValue(setting)}'`);
      const after = await shown();
      if (after !== before) wrong.push(`${name}: ${after} instead of ${before}`);
    }
    expect(wrong).toEqual([]);
  });

  // PostgreSQL has it from 17 on.
  it.each(version === 15 ? [] : ['transaction_timeout'])('has %s end the transactions of its own session only', async () => {
    const [own, other] = await Promise.all([service.connect(organization), service.connect(organization)]);
    await own.query("SET transaction_timeout = '300ms'");
    await other.query('SELECT pg_sleep(0.5)');
    expect((await service.query(organization, 'SELECT pg_sleep(0.5)')).status).toBe(200);
    await other.query('BEGIN');
    await expect(own.query('SELECT pg_sleep(5)')).rejects.toMatchObject({ code: '25P04' });
    await other.query('COMMIT');
    await other.end();
  });

  describe('customized options', () => {
    const VALUE = "SELECT current_setting('app.tenant', true) AS v";
    const valueIn = async (client: pg.Client) => (await client.query(VALUE)).rows[0].v;
    const valueOverHttp = async () => (await service.query(organization, VALUE)).body.rows[0].v;
    const TENANT = '0b5a1f3c-6a0e-4f0b-9d4e-2f6f1c1d7a10';
    /** What sets one until the end of its transaction, or not beyond the statements themselves. */
    const WAYS = [
      [`BEGIN; SET LOCAL app.tenant = '${TENANT}'; COMMIT`],
      [`BEGIN; SET LOCAL "App".Tenant TO '${TENANT}'; ROLLBACK`],
      [`SELECT set_config('app.tenant', '${TENANT}', true)`],
      [`SELECT pg_catalog.set_config ( 'APP.tenant' , '${TENANT}', false)`],
      ["SELECT set_config('app.' || 'tenant', 'computed', true)"],
      [`SET app.tenant = '${TENANT}'; RESET app.tenant`],
      ['RESET app.tenant'],
      [`DO $$BEGIN PERFORM set_config('app.tenant', '${TENANT}', true); END$$`],
      ["DO $$BEGIN EXECUTE format('SET LOCAL app.%I = 1', 'tenant'); END$$"],
      [`BEGIN; SET LOCAL app.tenant = '${TENANT}'; DISCARD PLANS; ROLLBACK`],
    ] as const;

    beforeEach(async () => {
      organization = await service.signUp();
    });

    it('exist in a session of PostgreSQL that has set one', async () => {
      const client = new pg.Client(server);
      await client.connect();
      expect(await valueIn(client)).toBeNull();
      await client.query(WAYS[0][0]);
      expect(await valueIn(client)).toBe('');
      await client.end();
    });

    it.each(WAYS)('do not exist in other sessions, nor over HTTP: %s', async (way) => {
      const [setting, other] = await Promise.all([service.connect(organization), service.connect(organization)]);
      try {
        await setting.query(way);
        expect(await valueIn(other)).toBeNull();
        expect(await valueOverHttp()).toBeNull();
        await setting.query(way);
        await other.query('BEGIN');
        expect(await valueOverHttp()).toBeNull();
        expect(await valueIn(other)).toBeNull();
        await other.query('COMMIT');
      } finally {
        await Promise.all([setting.end(), other.end()]);
      }
      const next = await service.connect(organization);
      expect(await valueIn(next)).toBeNull();
      await next.end();
    });

    it('are empty in the session that has set them, on each of its backends', async () => {
      const clients = await Promise.all(Array.from({ length: 3 }, () => service.connect(organization)));
      const [own, other, another] = clients as [pg.Client, pg.Client, pg.Client];
      await own.query(WAYS[0][0]);
      expect(await valueIn(own)).toBe('');
      await own.query('BEGIN');
      await other.query('BEGIN');
      await own.query('COMMIT');
      await another.query('BEGIN');
      await other.query('COMMIT');
      expect(await valueIn(own)).toBe('');
      await another.query('ROLLBACK');
      expect(await valueIn(another)).toBeNull();
      await Promise.all(clients.map((client) => client.end()));
    });

    it('let a policy that reads one work for new sessions', async () => {
      const owner = await service.connect(organization);
      await owner.query(`CREATE TABLE notes (tenant uuid, body text); INSERT INTO notes VALUES ('${TENANT}', 'one');
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY; ALTER TABLE notes FORCE ROW LEVEL SECURITY;
        CREATE POLICY own ON notes USING (tenant = current_setting('app.tenant', true)::uuid)`);
      const set = `SELECT set_config('app.tenant', '${TENANT}', true)`;
      const read = 'SELECT body FROM notes';
      for (let round = 0; round < 4; round += 1) {
        const client = await service.connect(organization);
        expect((await client.query(read)).rows).toEqual([]);
        await client.query('BEGIN');
        await client.query(set);
        expect((await client.query(read)).rows).toEqual([{ body: 'one' }]);
        await client.query('COMMIT');
        await client.end();
        const statements = [{ sql: set }, { sql: read }];
        const transaction = await service.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements } });
        expect(transaction.body.results[1].rows).toEqual([{ body: 'one' }]);
        expect((await service.query(organization, read)).body.rows).toEqual([]);
        expect((await service.query(organization, set)).status).toBe(200);
        expect((await service.query(organization, read)).body.rows).toEqual([]);
        const headers = { 'neon-connection-string': `postgres://${organization.id}:${organization.apiKey}@localhost/${organization.id}` };
        const neon = await service.call('POST', '/sql', {
          headers,
          body: {
            queries: [
              { query: set, params: [] },
              { query: read, params: [] },
            ],
          },
        });
        expect(neon.body.results[1].rows).toHaveLength(1);
        expect((await service.call('POST', '/sql', { headers, body: { query: read, params: [] } })).body.rows).toEqual([]);
      }
      await owner.end();
    });

    const opened = () => service.observations.filter(({ name }) => name === 'backend.opened').length;

    it('do not cost their sessions their backends', async () => {
      const clients = await Promise.all(Array.from({ length: 6 }, () => service.connect(organization)));
      const round = () =>
        Promise.all(
          clients.map(async (client) => {
            await client.query('BEGIN');
            await client.query(`SET LOCAL app.tenant = '${TENANT}'`);
            await client.query('COMMIT');
          }),
        );
      await round();
      const before = opened();
      for (let repeat = 0; repeat < 20; repeat += 1) await round();
      expect(opened()).toBe(before);
      await Promise.all(clients.map((client) => client.end()));
    });

    /** A client that connects for one transaction. @param begun is called when it has begun */
    const asTransaction = async (first: string, begun: () => Promise<unknown> = async () => {}) => {
      const client = await service.connect(organization);
      try {
        await client.query('BEGIN');
        await begun();
        const answer = await client.query(first);
        const { rows } = await client.query("SELECT now() AS at, current_setting('app.tenant', true) AS tenant");
        await client.query('COMMIT');
        return { answer, ...(rows[0] as { at: Date; tenant: string | null }) };
      } finally {
        await client.end();
      }
    };
    const SET = `SET LOCAL app.tenant = '${TENANT}'`;

    it('do not cost clients that connect for one transaction, and set them behind BEGIN, a backend each', async () => {
      for (let repeat = 0; repeat < 3; repeat += 1) await asTransaction(SET);
      const before = opened();
      for (let repeat = 0; repeat < 20; repeat += 1) expect((await asTransaction(SET)).tenant).toBe(TENANT);
      // On a busy machine a second backend may not be kept long enough once in a while.
      expect(opened() - before).toBeLessThan(10);
    });

    it('are NULL in transactions that have begun in two places and do not set them, and now() is the time of BEGIN', async () => {
      const observer = new pg.Client(server);
      await observer.connect();
      try {
        for (let repeat = 0; repeat < 3; repeat += 1) await asTransaction(SET);
        for (const first of [VALUE, SET, "SELECT set_config('app.other', 'x', true)", VALUE, `${SET}; SELECT 1`, SET, 'SELECT 1', SET]) {
          let begunAt = new Date(0);
          const { at, tenant, answer } = await asTransaction(first, async () => {
            begunAt = (await observer.query('SELECT clock_timestamp() AS at')).rows[0].at;
          });
          expect(at.getTime()).toBeLessThanOrEqual(begunAt.getTime());
          expect(tenant).toBe(first.startsWith(SET) ? TENANT : null);
          if (first === VALUE) expect(answer.rows).toEqual([{ v: null }]);
        }
        const leftOpen = 'SELECT count(*)::int4 AS n FROM pg_stat_activity WHERE usename = $1 AND xact_start IS NOT NULL';
        await eventually('no transaction is left open', async () => (await observer.query(leftOpen, [organization.id])).rows[0].n === 0);
      } finally {
        await observer.end();
      }
    });

    it('do not cost callers over HTTP who set them first their backends', async () => {
      const set = `SELECT set_config('app.tenant', $1, true)`;
      const call = (sql: string) =>
        service.call('POST', '/api/transaction', {
          key: organization.apiKey,
          body: { statements: [{ sql, params: [TENANT] }, { sql: "SELECT current_setting('app.tenant') AS v" }] },
        });
      await call(set);
      const before = opened();
      for (let repeat = 0; repeat < 20; repeat += 1) expect((await call(set)).body.results[1].rows).toEqual([{ v: TENANT }]);
      expect(opened()).toBe(before);
    });
  });
});
