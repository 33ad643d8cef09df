import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What an organization can leave on its own role, to be found by its next login. */
const HOSTILE_SETTINGS = [
  "search_path = 'nowhere'",
  'statement_timeout = 1',
  'lock_timeout = 1',
  'idle_in_transaction_session_timeout = 1',
  'idle_session_timeout = 1',
  'transaction_timeout = 1',
  'default_transaction_read_only = on',
  "default_transaction_isolation = 'serializable'",
  'default_transaction_deferrable = on',
  "local_preload_libraries = 'nowhere'",
  "client_encoding = 'SQL_ASCII'",
  "datestyle = 'SQL, DMY'",
  "intervalstyle = 'sql_standard'",
  "bytea_output = 'escape'",
  'extra_float_digits = -15',
  'standard_conforming_strings = off',
  'row_security = off',
  "timezone = 'Asia/Tokyo'",
  "default_tablespace = 'nowhere'",
  "default_table_access_method = 'heap'",
  "temp_tablespaces = 'nowhere'",
  "work_mem = '64kB'",
  'max_parallel_workers_per_gather = 0',
  'client_min_messages = error',
  'jit_above_cost = 0',
  'exit_on_error = on',
  'transaction_read_only = on',
];

describe.each(PLACEMENTS)('an organization in a %s of its own that', (placement) => {
  let service: TestService;
  beforeAll(async () => {
    // Every statement that follows a pause comes from a session that has just logged in.
    service = await startTestService({ POSTERN_PLACEMENT: placement, POSTERN_BACKEND_IDLE_MS: '1' });
  });
  afterAll(() => service.close());

  /** Waits until all of an organization's sessions on the server have ended. */
  async function loggedOut({ id }: TestOrganization): Promise<void> {
    const client = new pg.Client(inject('cluster'));
    await client.connect();
    const sessions = async () => (await client.query('SELECT FROM pg_stat_activity WHERE usename = $1', [id])).rowCount;
    await eventually('nobody is logged in', async () => (await sessions()) === 0);
    await client.end();
  }

  /** Through both doors, each with a new session: reading what was there, and writing. */
  async function worksAgain(organization: TestOrganization): Promise<void> {
    await loggedOut(organization);
    expect(await service.query(organization, 'CREATE TABLE over_http AS SELECT 1 AS one')).toMatchObject({ status: 200 });
    expect((await service.query(organization, 'SELECT * FROM over_http')).body.rows).toEqual([{ one: 1 }]);
    await loggedOut(organization);
    const client = await service.connect(organization);
    await client.query('CREATE TABLE over_wire AS SELECT 2 AS two');
    expect((await client.query('SELECT * FROM over_wire, over_http')).rows).toEqual([{ one: 1, two: 2 }]);
    expect((await client.query('SELECT current_user AS me, current_schema() AS place')).rows).toEqual([
      { me: organization.id, place: placement === 'database' ? 'public' : organization.id },
    ]);
    await client.end();
  }

  /** Runs something at the wire. @returns the SQLSTATEs with which it ended; 00000 for what was not refused */
  async function tries(organization: TestOrganization, ...statements: string[]): Promise<string[]> {
    const client = await service.connect(organization);
    const states: string[] = [];
    for (const sql of statements) {
      const state = client.query(sql).then(
        () => '00000',
        (error: { code: string }) => error.code,
      );
      states.push(await state);
    }
    await client.end();
    return states;
  }

  it('leaves hostile settings on its role, in general and for its database', async () => {
    const organization = await service.signUp();
    const states = await tries(
      organization,
      ...HOSTILE_SETTINGS.map((setting) => `ALTER ROLE CURRENT_USER SET ${setting}`),
      ...HOSTILE_SETTINGS.map(
        (setting) =>
          `DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET ${setting.replaceAll("'", "''")}', current_database()); END $$`,
      ),
    );
    expect(new Set(states)).toEqual(new Set(['00000']));
    await worksAgain(organization);
    const { body } = await service.query(
      organization,
      "SELECT now() AS at, interval '1 day' AS span, 0.1::float8 AS number, decode('00', 'hex') AS bytes, 'é' AS text",
    );
    expect(body.rows).toEqual([{ at: expect.stringMatching(/Z$/), span: '1 day', number: 0.1, bytes: '\\x00', text: 'é' }]);
  });

  it.each([
    ['changes its password', "ALTER ROLE CURRENT_USER PASSWORD 'its own'", { database: '00000', schema: '00000' }],
    [
      'changes its password where nobody sees it',
      "DO $$ BEGIN EXECUTE 'ALTER ROLE CURRENT_USER PASSWORD ' || quote_literal('its own'); END $$",
      { database: '00000', schema: '00000' },
    ],
    ['has no password any more', 'ALTER ROLE CURRENT_USER PASSWORD NULL', { database: '00000', schema: '00000' }],
    ['drops everything it owns', 'DROP OWNED BY CURRENT_USER CASCADE', { database: '00000', schema: '00000' }],
    ['drops public', 'DROP SCHEMA public CASCADE', { database: '00000', schema: '42501' }],
    ['renames public', 'ALTER SCHEMA public RENAME TO private', { database: '00000', schema: '42501' }],
    ['revokes its rights on public', 'REVOKE ALL ON SCHEMA public FROM CURRENT_USER, PUBLIC', { database: '00000', schema: '00000' }],
    ['lets its password end', "ALTER ROLE CURRENT_USER VALID UNTIL '2000-01-01'", { database: '42501', schema: '42501' }],
    ['lets itself in no more', 'ALTER ROLE CURRENT_USER NOLOGIN', { database: '42501', schema: '42501' }],
    ['lets itself in never at once', 'ALTER ROLE CURRENT_USER CONNECTION LIMIT 0', { database: '42501', schema: '42501' }],
    ['renames itself', 'ALTER ROLE CURRENT_USER RENAME TO somebody', { database: '42939', schema: '42939' }],
    ['drops itself', 'DROP ROLE CURRENT_USER', { database: '42501', schema: '42501' }],
    ['gives everything away', 'REASSIGN OWNED BY CURRENT_USER TO postern_platform', { database: '42501', schema: '42501' }],
    ['gives public away', 'ALTER SCHEMA public OWNER TO pg_database_owner', { database: '42501', schema: '42501' }],
    ['delays its own logins', 'ALTER ROLE CURRENT_USER SET post_auth_delay = 60', { database: '55P02', schema: '55P02' }],
    [
      'turns off the indexes of the catalogs',
      'ALTER ROLE CURRENT_USER SET ignore_system_indexes = on',
      { database: '55P02', schema: '55P02' },
    ],
    [
      'loads libraries before its logins',
      "ALTER ROLE CURRENT_USER SET session_preload_libraries = 'nowhere'",
      { database: '42501', schema: '42501' },
    ],
  ])('%s works again at both doors', async (_what, sql, state) => {
    const organization = await service.signUp();
    expect(await tries(organization, sql)).toEqual([state[placement]]);
    await worksAgain(organization);
  });

  it('revokes all its rights on its database and its schema works again at both doors', async () => {
    const organization = await service.signUp();
    const states = await tries(
      organization,
      "DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM CURRENT_USER, PUBLIC', current_database()); END $$",
      "DO $$ BEGIN EXECUTE format('REVOKE ALL ON SCHEMA %I FROM CURRENT_USER, PUBLIC', current_schema()); END $$",
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 0', current_database()); END $$",
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = nowhere', current_database()); END $$",
      'DROP SCHEMA public CASCADE',
    );
    expect(states).toEqual(['00000', '00000', '42501', '42501', placement === 'database' ? '00000' : '42501']);
    await worksAgain(organization);
  });

  it('keeps its own role locked is held up itself, and nobody else is', async () => {
    const [hostile, other] = [await service.signUp(), await service.signUp()];
    const holder = await service.connect(hostile);
    await holder.query("BEGIN; ALTER ROLE CURRENT_USER PASSWORD 'its own'");
    await loggedOut(other);
    expect((await service.query(other, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    await service.signUp();
    await holder.query('COMMIT');
    await holder.end();
    await worksAgain(hostile);
  });

  it('ends its own sessions, where nobody sees it, has others', async () => {
    const organization = await service.signUp();
    const client = await service.connect(organization);
    await client.query('CREATE FUNCTION process() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN pg_backend_pid(); END $$; BEGIN');
    const { rows } = await client.query<{ process: string }>('SELECT process()');
    const ended = new Promise((resolve) => client.once('end', resolve));
    const end = `DO $$ BEGIN EXECUTE 'SELECT pg_terminate' || '_backend(${rows[0]?.process})'; END $$`;
    expect((await service.query(organization, end)).status).toBe(200);
    await ended;
    await worksAgain(organization);
  });

  it('does all that at once works again without a word to the operator', async () => {
    const organization = await service.signUp();
    await tries(
      organization,
      ...HOSTILE_SETTINGS.map((setting) => `ALTER ROLE CURRENT_USER SET ${setting}`),
      'DROP OWNED BY CURRENT_USER CASCADE',
      'DROP SCHEMA public CASCADE',
      'ALTER ROLE CURRENT_USER PASSWORD NULL',
    );
    await worksAgain(organization);
    expect(service.observations.filter(({ name }) => name === 'service.failure')).toEqual([]);
  });
});
