/** Something that a session holds when its transaction has ended, and that nobody else may find. */
export interface Leftover {
  readonly what: string;
  readonly leave: string;
  /** Its only value is what is found. */
  readonly look: string;
  /** Of who has left it there. */
  readonly found: string | null;
  /** Of everybody else. */
  readonly clean: string | null;
  /** The HTTP door refuses to begin it, since it would be gone with the call. */
  readonly wireOnly?: true;
}

const setting = (name: string) => `SELECT nullif(current_setting('${name}', true), '')`;

export const LEFTOVERS: readonly Leftover[] = [
  { what: 'a setting', leave: "SET statement_timeout = '7min'", look: setting('statement_timeout'), found: '7min', clean: '0' },
  {
    what: 'a setting that the server reports',
    leave: "SET TimeZone = 'Asia/Tokyo'",
    look: setting('TimeZone'),
    found: 'Asia/Tokyo',
    clean: 'UTC',
  },
  { what: 'a setting of its own', leave: "SET app.who = 'first'", look: setting('app.who'), found: 'first', clean: null },
  {
    what: 'a setting that a function call sets',
    leave: "SELECT set_config('app.who', 'first', false)",
    look: setting('app.who'),
    found: 'first',
    clean: null,
  },
  {
    what: 'a setting that a block sets',
    leave: "DO $$ BEGIN PERFORM set_config('work_mem', '7MB', false); END $$",
    look: setting('work_mem'),
    found: '7MB',
    clean: '4MB',
  },
  {
    what: 'a search path',
    leave: 'SET search_path = nowhere',
    look: "SELECT (current_setting('search_path') = 'nowhere')::text",
    found: 'true',
    clean: 'false',
  },
  {
    what: 'the mode of transactions to come',
    leave: 'SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY',
    look: setting('default_transaction_read_only'),
    found: 'on',
    clean: 'off',
  },
  {
    what: 'its own role',
    leave: "DO $$ BEGIN EXECUTE 'SET ROLE ' || current_user; END $$",
    look: "SELECT (current_setting('role') = 'none')::text",
    found: 'false',
    clean: 'true',
  },
  {
    what: 'a temporary table',
    leave: "CREATE TEMPORARY TABLE passing AS SELECT 'first' AS who",
    look: "SELECT to_regclass('pg_temp.passing')::text",
    found: 'passing',
    clean: null,
  },
  {
    what: 'a temporary table that stands before one of everybody',
    leave: "CREATE TEMPORARY TABLE everybodys AS SELECT 'first' AS who",
    look: 'SELECT who FROM everybodys',
    found: 'first',
    clean: 'everybody',
  },
  {
    what: 'a temporary function',
    leave: "CREATE FUNCTION pg_temp.who() RETURNS text LANGUAGE sql AS $$ SELECT 'first' $$",
    look: 'SELECT count(*)::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema()',
    found: '1',
    clean: '0',
  },
  {
    what: 'a prepared statement',
    leave: "PREPARE who AS SELECT 'first'",
    look: "SELECT count(*)::text FROM pg_prepared_statements WHERE name = 'who'",
    found: '1',
    clean: '0',
  },
  {
    what: 'a cursor that outlives its transaction',
    leave: "DECLARE who CURSOR WITH HOLD FOR SELECT 'first'",
    look: "SELECT count(*)::text FROM pg_cursors WHERE name = 'who'",
    found: '1',
    clean: '0',
  },
  {
    what: 'a channel',
    leave: 'LISTEN who',
    look: 'SELECT count(*)::text FROM pg_listening_channels()',
    found: '1',
    clean: '0',
    wireOnly: true,
  },
  {
    what: "a sequence's last value",
    leave: "SELECT nextval('numbers')",
    look: 'SELECT (lastval() > 0)::text',
    found: 'true',
    clean: '55000',
  },
];
