/**
 * What the rewriting of the `schema` placement costs: `node dist/test/bench/search-path.js`.
 * Budgets: under 1 µs without a trigger word, under 10 µs for 250 bytes with one, and no noticeable pause for large texts.
 */
import { LARGE_SQL_BYTES, rewriteLargeSql, rewriteSql } from '../../src/rewriting/rewrite-sql.ts';

const PLACE = { schema: 'org_k3v9x0q2m7t1' };

const SELECT =
  'SELECT "User"."id", "User"."email", "User"."name", "User"."createdAt", "User"."updatedAt" FROM "app"."User" ' +
  'LEFT JOIN "app"."Post" AS "j1" ON ("j1"."authorId") = ("User"."id") WHERE ("User"."email" = $1 AND "j1"."id" IN ($2,$3)) LIMIT $4 OFFSET $5';

const STATEMENTS: Record<string, string> = {
  'no trigger word': SELECT,
  'public, as Prisma writes it':
    'SELECT "public"."User"."id", "public"."User"."email", "public"."User"."name" FROM "public"."User" LEFT JOIN "public"."Post" AS "j1" ' +
    'ON ("j1"."authorId") = ("public"."User"."id") WHERE ("public"."User"."email" = $1 AND 1=1) LIMIT $2 OFFSET $3',
  'public, once': SELECT.replace('"app"."User"', 'public.users'),
  'public, as data': `INSERT INTO posts (title, visibility, body, author_id) VALUES ('${'a title '.repeat(18)}', 'public', $1, $2), ($3, 'private', $4, $5) RETURNING id, title, 1`,
  'notify, in a function': `CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('changes', NEW.id::text); UPDATE public.counters SET n = n + 1 WHERE relation = 'public.posts'::regclass; RETURN NEW; END $$`,
};

/**
 * Microseconds of processor time per call, which a busy machine does not blur: the best of 20 runs of about 10 ms, after
 * two seconds in which the code gets compiled.
 */
function timed(call: () => unknown): number {
  let rounds = 1;
  const run = (): number => {
    const before = process.cpuUsage();
    for (let round = 0; round < rounds; round++) call();
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  while (run() < 10_000) rounds *= 2;
  for (let left = 2_000_000; left > 0; ) left -= run();
  return Math.min(...Array.from({ length: 20 }, () => run() / rounds));
}

function report(name: string, ...columns: string[]): void {
  console.log(name.padEnd(34), ...columns.map((column) => column.padStart(16)));
}

function benchSmall(): void {
  report('statement', 'bytes', 'Buffer', 'string');
  for (const [name, text] of Object.entries(STATEMENTS)) {
    const bytes = Buffer.from(text);
    const microseconds = [() => rewriteSql(bytes, PLACE), () => rewriteSql(text, PLACE)].map((call) => `${timed(call).toFixed(2)} µs`);
    report(name, String(bytes.length), ...microseconds);
  }
}

/** Watches the event loop: the most processor time, in milliseconds, that anything else took between two of its turns. */
function watchTurns(): () => number {
  let longest = 0;
  let before = process.cpuUsage();
  let watching = true;
  const turn = (): void => {
    const { user, system } = process.cpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.cpuUsage();
    if (watching) setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    watching = false;
    turn();
    return longest;
  };
}

async function benchLarge(name: string, text: string): Promise<void> {
  const bytes = Buffer.from(text);
  const pauses: number[] = [];
  const times: number[] = [];
  let edits = 0;
  for (let run = 0; run < 5; run++) {
    const stop = watchTurns();
    const before = process.cpuUsage();
    edits = (await rewriteLargeSql(bytes, PLACE)).edits.length;
    const { user, system } = process.cpuUsage(before);
    times.push((user + system) / 1000);
    pauses.push(stop());
  }
  report(
    name,
    `${(bytes.length / 1e6).toFixed(1)} MB`,
    `${edits}`,
    `${Math.min(...times).toFixed(1)} ms`,
    `${Math.min(...pauses).toFixed(1)} ms`,
  );
}

const row = `(1, 'a name with it''s quote', 'someone@example.com', 12.5, now(), NULL),\n`;
const head = 'INSERT INTO "public"."User" ("id", "name", "email", "score", "createdAt", "x") VALUES\n';

benchSmall();
console.log();
report('large text', 'size', 'edits', 'in all', 'longest turn');
await benchLarge('INSERT, public once', head + row.repeat(150_000));
await benchLarge('INSERTs, public in each', (head + row).repeat(70_000));
await benchLarge('one string', `SELECT '${'public '.repeat(1_500_000)}', 'public.x'::regclass`);
await benchLarge('one function', `DO $$ BEGIN ${"UPDATE public.a SET b = 'x' WHERE c = 1; ".repeat(250_000)} END $$`);
await benchLarge('just large', head + row.repeat(Math.ceil(LARGE_SQL_BYTES / row.length)));
