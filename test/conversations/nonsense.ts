import { SeededRandom } from '../support/random.ts';

const MESSAGES = 60;

/**
 * A conversation of messages in orders that make no sense, the same for the same seed, as conversations are written; an entry
 * may be several lines. A simple query is no part of an extended one, and at the end nothing is left open.
 */
export function nonsense(seed: number): string[] {
  const random = new SeededRandom(seed);
  const lines = Array.from({ length: MESSAGES }, () => pick(random, KINDS)(random).replaceAll('#', String(seed)));
  return [
    ...lines.flatMap((line) => (line.startsWith('Query') ? ['Sync', line] : [line])),
    'CopyDone',
    'Sync',
    'Query ROLLBACK',
    'Query SELECT 1',
  ];
}

type Weighted<T> = readonly (readonly [weight: number, choice: T])[];

/** Statements that change what a session holds, and statements that show it; `#` is the conversation's own number. */
const STATEMENTS: Weighted<string> = [
  [6, 'SELECT 1'],
  [3, 'SELECT generate_series(1, 5) AS n'],
  [2, "SELECT 'a' AS a; SELECT 'b' AS b"],
  [1, ''],
  [1, '-- nothing'],
  [2, 'SELECT 1 / 0'],
  [1, 'SELEC'],
  [6, 'BEGIN'],
  [5, 'COMMIT'],
  [4, 'ROLLBACK'],
  [1, 'BEGIN; SELECT 1'],
  [1, 'COMMIT AND CHAIN'],
  [2, 'SAVEPOINT s'],
  [2, 'ROLLBACK TO s'],
  [1, 'RELEASE s'],
  [3, 'INSERT INTO t# VALUES (1)'],
  [3, 'SELECT count(*) FROM t#'],
  [1, "INSERT INTO t# VALUES (1) RETURNING n, 'x' AS x"],
  [1, 'DELETE FROM t#'],
  [3, "SET application_name = 'a#'"],
  [2, "SET LOCAL application_name = 'local#'"],
  [3, 'SHOW application_name'],
  [2, "SET DateStyle = 'SQL, DMY'"],
  [2, "SELECT date '2025-01-31' AS day"],
  [2, "SET work_mem = '#MB'"],
  [2, 'SHOW work_mem'],
  [1, 'RESET ALL'],
  [1, 'RESET DateStyle'],
  [1, 'SET client_encoding = latin1'],
  [1, 'SET client_encoding = utf8'],
  [1, 'DISCARD ALL'],
  [1, 'DEALLOCATE ALL'],
  [1, 'PREPARE q (int) AS SELECT $1 + # AS n'],
  [2, 'EXECUTE q (1)'],
  [1, 'EXECUTE s1'],
  [1, 'DEALLOCATE s1'],
  [1, 'DECLARE c CURSOR FOR SELECT generate_series(1, 3) AS n'],
  [1, 'DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 3) AS n'],
  [2, 'FETCH 2 FROM c'],
  [1, 'CLOSE c'],
  [1, 'CREATE TEMPORARY TABLE own# (n int)'],
  [1, 'INSERT INTO own# VALUES (#)'],
  [1, 'SELECT n FROM own#'],
  [1, 'DROP TABLE own#'],
  [1, 'LISTEN c#'],
  [2, "NOTIFY c#, 'news'"],
  [1, 'UNLISTEN *'],
  [1, 'SELECT 1 FROM pg_advisory_lock(#)'],
  [1, 'SELECT 1 FROM pg_advisory_unlock_all()'],
  [1, "DO $$ BEGIN RAISE NOTICE 'number #'; END $$"],
  [1, 'COPY t# TO STDOUT'],
  [1, 'COPY t# FROM STDIN'],
  [1, 'VACUUM t#'],
];

const PARAMETRIZED: Weighted<string> = [
  [3, 'SELECT $1::int + 1 AS n'],
  [1, 'SELECT $1::text AS a, $1::text AS b'],
  [1, 'INSERT INTO t# VALUES ($1)'],
  [1, 'SELECT generate_series(1, $1::int) AS n'],
];

const STATEMENT_NAMES: Weighted<string> = [
  [4, '""'],
  [2, 's1'],
  [2, 's2'],
];
const PORTAL_NAMES: Weighted<string> = [
  [5, '""'],
  [1, 'p1'],
];
const VALUES: Weighted<string> = [
  [4, '[]'],
  [3, '[3]'],
  [1, '[x]'],
  [1, '[1 2]'],
];

/**
 * One message as conversations write it, or a few that belong together. The unnamed portal is executed only behind its Bind:
 * Postgres can be crashed by Execute otherwise (see stray-portal.test.ts).
 */
const KINDS: Weighted<(random: SeededRandom) => string> = [
  [8, (random) => `Query ${pick(random, STATEMENTS)}`],
  [5, parse],
  [2, (random) => `Bind ${pick(random, PORTAL_NAMES)} ${pick(random, STATEMENT_NAMES)} ${pick(random, VALUES)}`],
  [6, (random) => `Bind "" ${pick(random, STATEMENT_NAMES)} ${pick(random, VALUES)}\nExecute "" ${random.below(3)}`],
  [1, (random) => `Bind "" ${pick(random, STATEMENT_NAMES)} []\nDescribe P ""\nExecute "" 1\nExecute "" 0`],
  [2, (random) => `Describe S ${pick(random, STATEMENT_NAMES)}`],
  [2, (random) => `Describe P ${pick(random, PORTAL_NAMES)}`],
  [2, (random) => `Execute p1 ${random.below(3)}`],
  [1, (random) => `Close S ${pick(random, STATEMENT_NAMES)}`],
  [1, (random) => `Close P ${pick(random, PORTAL_NAMES)}`],
  [6, () => 'Sync'],
  [1, () => 'Flush'],
  [1, () => 'CopyData "7\\n"'],
  [1, () => 'CopyDone'],
  [1, () => 'CopyFail enough'],
];

/** The text tells the name: of two names for one text, errors would say the other. */
function parse(random: SeededRandom): string {
  const name = pick(random, STATEMENT_NAMES);
  return `Parse ${name} ${pick(random, random.below(2) === 0 ? PARAMETRIZED : STATEMENTS)} /* ${name} */`;
}

function pick<T>(random: SeededRandom, from: Weighted<T>): T {
  let place = random.below(from.reduce((sum, [weight]) => sum + weight, 0));
  for (const [weight, choice] of from) {
    place -= weight;
    if (place < 0) return choice;
  }
  throw new Error('nothing to pick from');
}
