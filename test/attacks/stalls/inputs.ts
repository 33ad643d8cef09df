import { extended, message, query } from './attacker.ts';
import type { StallAttack } from './stall-attack.ts';

const MIB = 1_048_576;

/** A migration that is tried out. */
const migration = (sql: string, name = 'stall') => JSON.stringify({ name, sql, dryRun: true });
const statement = (sql: string) => JSON.stringify({ sql });
const transaction = (count: number, sql: string) => JSON.stringify({ statements: Array.from({ length: count }, () => ({ sql })) });
const neonBatch = (count: number, sql: string) => JSON.stringify({ queries: Array.from({ length: count }, () => ({ query: sql })) });
/** Fails at once, so that what is behind it is read and not run. */
const FAILS = 'select nowhere;';

const LETTERS = 'a'.repeat(14_000);

/** At the JSON door. */
const API_ATTACKS: readonly StallAttack[] = [
  {
    what: 'ten paths of 14,000 letters without a key',
    placement: 'database',
    run: (attacker) => attacker.onConnections(10, Buffer.from(`GET /api/queries/${LETTERS} HTTP/1.1\r\nHost: localhost\r\n\r\n`)),
    answer: '404',
  },
  {
    what: 'ten users of 14,000 letters in Neon-Connection-String',
    placement: 'database',
    run: (attacker) =>
      attacker.onConnections(
        10,
        Buffer.from(
          `POST /sql HTTP/1.1\r\nHost: localhost\r\nNeon-Connection-String: postgres://${LETTERS}:x@h/d\r\nContent-Length: 0\r\n\r\n`,
        ),
      ),
    answer: '400',
  },
  {
    what: 'a body with 99,999 unknown members',
    placement: 'database',
    run: (attacker) => attacker.api('query', `{"sql":"select 1",${members(99_998)}}`),
    answer: '400',
  },
  {
    what: 'a statement of a transaction with 99,999 unknown members',
    placement: 'database',
    run: (attacker) => attacker.api('transaction', `{"statements":[{"sql":"select 1",${members(99_998)}}]}`),
    answer: '400',
  },
  {
    what: '3,000,000 members of one name',
    placement: 'database',
    run: (attacker) => attacker.api('query', `{${'"a":1,'.repeat(2_500_000)}"sql":"select 1"}`),
    answer: '400',
  },
  {
    what: 'a body of 15 MB of brackets',
    placement: 'database',
    run: (attacker) => attacker.api('query', `{"sql":"select 1","params":${'['.repeat(15 * MIB)}`),
    answer: '400',
  },
  {
    what: 'a string of 15 MB of escapes',
    run: (attacker) => attacker.api('query', `{"sql":"select length('${'\\u00e9'.repeat(2.5 * MIB)}')"}`),
    answer: '200',
  },
  {
    what: 'a string of 15 MB that is not ASCII',
    run: (attacker) => attacker.api('query', statement(`select length('${'é'.repeat(7.5 * MIB)}')`)),
    answer: '200',
  },
  {
    what: 'a name of 15 MB of spaces',
    placement: 'database',
    run: (attacker) => attacker.api('migrations', migration('select 1', `x${' '.repeat(15 * MIB)}x`)),
    answer: '400',
  },
  {
    what: 'an isolation level of 15 MB',
    placement: 'database',
    run: (attacker) =>
      attacker.api('transaction', JSON.stringify({ statements: [{ sql: 'select 1' }], isolationLevel: '-'.repeat(15 * MIB) })),
    answer: '400',
  },
  {
    what: 'an audit search for a moment of 15 MB',
    placement: 'database',
    run: (attacker) => attacker.api('audit', JSON.stringify({ since: '1'.repeat(15 * MIB) })),
    answer: '400',
  },
  {
    what: 'a migration of 15 MB of semicolons',
    run: (attacker) => attacker.api('migrations', migration(`select 1${';'.repeat(15 * MIB)}`)),
    answer: '200',
  },
  {
    what: 'a migration of 15 MB of spaces',
    run: (attacker) => attacker.api('migrations', migration(`${' '.repeat(15 * MIB)}select 1`)),
    answer: '400',
  },
  {
    what: 'a migration that ends in 15 MB of comments in comments',
    run: (attacker) => attacker.api('migrations', migration(`${FAILS}${'/*'.repeat(7.5 * MIB)}`)),
    answer: '400',
  },
  {
    what: 'a migration with an error behind 7,500,000 empty lines',
    run: (attacker) => attacker.api('migrations', migration(`select${'\n'.repeat(7.5 * MIB)} nowhere`)),
    answer: '400',
  },
  {
    what: 'a migration of 240,000 statements that change all rows',
    run: (attacker) =>
      attacker.api('migrations', migration(`${FAILS}${'update t set a=(1),b=2 where c=3 -- all of them\n;'.repeat(240_000)}`)),
    answer: '400',
  },
  {
    what: 'a migration that renames 700,000 columns at once',
    run: (attacker) => attacker.api('migrations', migration(`${FAILS}alter table t ${'drop a, alter b set not null,'.repeat(500_000)}`)),
    answer: '400',
  },
  {
    what: 'a migration of 15 MB with a key that makes it happen once',
    run: (attacker) => attacker.api('migrations', migration(`${FAILS}${'-- x\n'.repeat(2.5 * MIB)}`), { 'idempotency-key': 'once' }),
    answer: '400',
  },
  {
    what: 'a query of 64 KB of parentheses',
    run: (attacker) => attacker.api('query', statement('('.repeat(65_536))),
    answer: '400',
  },
  {
    what: 'a query of 64 KB of names with dots',
    run: (attacker) => attacker.api('query', statement(`select ${'a.'.repeat(32_000)}`)),
    answer: '400',
  },
  {
    what: 'a query of 15 MB of passw /*/*',
    run: (attacker) => attacker.api('query', statement(`select ${'passw /*/*'.repeat(1.5 * MIB)}`)),
    answer: '400',
  },
  {
    what: 'a query of 15 MB of quotes and backslashes with a password',
    run: (attacker) => attacker.api('query', statement(`select passw ${"E'\\''".repeat(2 * MIB)}`)),
    answer: '400',
  },
  {
    what: 'a query of 15 MB of dollar quotes',
    run: (attacker) => attacker.api('query', statement(`select ${'$a$ $b$ '.repeat(1.5 * MIB)}`)),
    answer: '400',
  },
  {
    what: 'a transaction of 1,000 statements of 15 KB',
    run: (attacker) => attacker.api('transaction', transaction(1_000, `select nowhere ${'a.b,('.repeat(3_000)}`)),
    answer: '400',
  },
  {
    what: 'a transaction of 900 statements of 17 KB that differ at the end only',
    run: (attacker) => {
      const statements = Array.from({ length: 900 }, (_, i) => ({ sql: `select ${' '.repeat(17_000)} nowhere${1_000 + i}` }));
      return attacker.api('transaction', JSON.stringify({ statements }));
    },
    answer: '400',
  },
  {
    what: 'a transaction of 1,000 statements of 15 KB that name public',
    placement: 'schema',
    run: (attacker) => attacker.api('transaction', transaction(1_000, `select ${'public.a,'.repeat(1_700)} nowhere`)),
    answer: '400',
  },
];

/** At the doors of Neon's drivers. */
const NEON_ATTACKS: readonly StallAttack[] = [
  {
    what: '15 MB of words to /sql',
    run: (attacker) => attacker.neon(JSON.stringify({ query: `select ${'public.a, '.repeat(1.5 * MIB)}` })),
    answer: '400',
  },
  {
    what: '1,000 statements of 15 KB to /sql',
    run: (attacker) => attacker.neon(neonBatch(1_000, `select ${'public.a,'.repeat(1_700)} nowhere`)),
    answer: '400',
  },
  {
    what: '15 MB of pg_notify( over a WebSocket',
    run: (attacker) => attacker.webSocket(query(`select ${'pg_notify('.repeat(1.5 * MIB)}`)),
    answer: '42601',
  },
  {
    what: '100,000 frames of one byte over a WebSocket',
    placement: 'database',
    run: (attacker) => attacker.webSocket(...[...query(`select '${'x'.repeat(100_000)}'`)].map((byte) => Buffer.from([byte]))),
    answer: '00000',
  },
];

/** At the wire door. */
const WIRE_ATTACKS: readonly StallAttack[] = [
  {
    what: '250 KB of public.a,',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`select ${'public.a,'.repeat(28_000)}1`)),
    answer: '42P01',
  },
  {
    what: '250 KB of pg_notify(',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`select ${'pg_notify('.repeat(25_000)}`)),
    answer: '42601',
  },
  {
    what: 'a plan of 130,000 characters that look like tables of Citus’ tasks',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`explain verbose select e'\\nTasks Shown: All\\n_123456' || repeat(' on "a_123456', 9000)`)),
    answer: '00000',
  },
  {
    what: 'a plan of 15,000 lines that look like Citus’ tasks',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`explain verbose select e'\\nTasks Shown: All' || repeat(e'\\n"a_123456', 15000)`)),
    answer: '00000',
  },
  {
    what: '250 KB of notify a;',
    placement: 'schema',
    run: (attacker) => attacker.wire(query('notify a;'.repeat(28_000))),
    answer: '00000',
  },
  {
    what: '16 MB of passw /*/*',
    run: (attacker) => attacker.wire(extended(`create table ${'passw /*/*'.repeat(1.5 * MIB)}`)),
    answer: '42601',
  },
  {
    what: '1 MB of set',
    run: (attacker) => attacker.wire(query('set '.repeat(260_000))),
    answer: '42601',
  },
  {
    what: '1 MB of strings behind deallocate and pg_backend_pid()',
    run: (attacker) => attacker.wire(query(`deallocate a, pg_backend_pid() ${"'a'||".repeat(170_000)}`)),
    answer: '42601',
  },
  {
    what: '1 MB of set_config( in a statement with a name',
    run: (attacker) => attacker.wire(extended(`select ${"set_config('a.b',".repeat(60_000)}`, 'named')),
    answer: '42601',
  },
  {
    what: '100,000 statements in one Query',
    run: (attacker) => attacker.wire(query('select 1;'.repeat(100_000))),
    answer: '00000',
  },
  {
    what: '100,000 settings set in one Query',
    run: (attacker) => attacker.wire(query(`${'set a.b=1;'.repeat(100_000)} nowhere`)),
    answer: '42601',
  },
  {
    what: '100,000 executions before one Sync',
    placement: 'database',
    run: (attacker) => attacker.wire(message('P', '\0select 1\0\0\0'), executions(100_000), message('S', '')),
    answer: '00000',
  },
  {
    what: '50,000 statements with names before one Sync',
    run: (attacker) => attacker.wire(...Array.from({ length: 50_000 }, (_, i) => message('P', `s${i}\0select 1\0\0\0`)), message('S', '')),
    answer: '00000',
  },
  {
    what: '1,000 executions of a statement of 1 MB that deallocates',
    placement: 'database',
    run: (attacker) =>
      attacker.wire(message('P', `\0deallocate nothing /* ${"'a' ".repeat(250_000)} */\0\0\0`), executions(1_000), message('S', '')),
    answer: '26000',
  },
  {
    what: '20,000 statements with names, and an error that names one of them 2,000 times',
    placement: 'database',
    run: async (attacker) => {
      await attacker.wire(query(FIND_PREPARED));
      return attacker.wire(...named(20_000), extended(NAMES_PREPARED));
    },
    answer: 'P0001',
  },
  {
    what: '65,535 parameters',
    placement: 'database',
    run: (attacker) => attacker.wire(message('P', `\0select 1\0\0\0`), parameters(65_535), message('S', '')),
    answer: '08P01',
  },
  {
    what: 'names of 16 MB',
    run: (attacker) =>
      attacker.wire(message('P', `${'n'.repeat(16 * MIB)}\0select 1\0\0\0`), message('D', `S${'n'.repeat(16 * MIB)}\0`), message('S', '')),
    answer: '54000',
  },
  {
    what: 'a portal with a name of 16 MB',
    placement: 'database',
    run: (attacker) =>
      attacker.wire(
        message('P', '\0select 1\0\0\0'),
        message('B', `${'n'.repeat(16 * MIB)}\0\0\0\0\0\0\0\0`),
        message('C', `P${'n'.repeat(16 * MIB)}\0`),
        message('S', ''),
      ),
    answer: '08P01',
  },
  {
    what: '1,000,000 messages of COPY data',
    placement: 'database',
    run: (attacker) =>
      attacker.wire(
        query('copy (values (1)) to stdout; create temp table c (a text); copy c from stdin'),
        Buffer.concat(Array.from({ length: 1_000_000 }, () => message('d', 'x\n'))),
        message('c', ''),
      ),
    answer: '00000',
  },
  {
    what: '1,000,000 Flushes',
    placement: 'database',
    run: (attacker) => attacker.wire(Buffer.concat(Array.from({ length: 1_000_000 }, () => message('H', ''))), message('S', '')),
    answer: '00000',
  },
  {
    what: 'a login with 1,000 settings',
    placement: 'database',
    run: (attacker) => attacker.wireWith({ options: '-c a.b=1 '.repeat(1_000) }, query('select 1')),
    answer: '00000',
  },
  {
    what: 'a login with options of 9,000 letters',
    placement: 'database',
    run: (attacker) => attacker.wireWith({ options: `-${'e'.repeat(9_000)}` }, query('select 1')),
    answer: '00000',
  },
  {
    what: 'a login with 9,000 backslashes',
    placement: 'database',
    run: (attacker) => attacker.wireWith({ options: `-c a.b=${'\\\\'.repeat(4_500)}` }, query('select 1')),
    answer: '00000',
  },
];

/** By what a client sends. */
export const INPUT_ATTACKS: readonly StallAttack[] = [...API_ATTACKS, ...NEON_ATTACKS, ...WIRE_ATTACKS];

/** Members of an object. */
function members(count: number): string {
  return Array.from({ length: count }, (_, i) => `"unknown member ${i}":1`).join(',');
}

/** Finds the name on the server of a statement that it has prepared. */
const FIND_PREPARED = `create function prepared() returns text language plpgsql as $$ declare found text;
  begin execute 'select name from pg_prep'||'ared_statements limit 1' into found; return found; end $$`;
const NAMES_PREPARED = `do $$ begin raise exception '%', repeat(prepared() || ' ', 2000); end $$`;

function named(count: number): Buffer[] {
  return Array.from({ length: count }, (_, i) => message('P', `s${i}\0select ${i}\0\0\0`));
}

/** Bind and Execute of the unnamed statement. */
function executions(count: number): Buffer {
  const one = Buffer.concat([message('B', '\0\0\0\0\0\0\0\0'), message('E', '\0\0\0\0\0')]);
  return Buffer.concat(Array.from({ length: count }, () => one));
}

/** A Bind with so many NULLs. */
function parameters(count: number): Buffer {
  const body = Buffer.alloc(2 + 2 + 2 + 4 * count + 2, 0xff);
  body.fill(0, 0, 4);
  body.writeUInt16BE(count, 4);
  body.fill(0, body.length - 2);
  return message('B', body);
}
