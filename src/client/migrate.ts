import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { CommandError, describeProblem, findOrganization, lineOf, type OrganizationApi, type Problem } from './organization-api.ts';

const USAGE = `usage: postern migrate [folder] [--dry-run]

  applies the migrations NNN_name.sql of the folder (./migrations) that the organization does not have yet, in the order of their
  numbers, each in a transaction of its own; NNN_name.down.sql, if it is there, is kept as what undoes it

  --dry-run   runs all of them in one transaction, which is rolled back

  A first line "-- transaction: false" runs a file statement by statement, for CREATE INDEX CONCURRENTLY and the like.
  API_URL and API_KEY name the organization, in the environment or in .env.postern.
  exit codes: 0 all are applied, or would be; 1 one failed, and those behind it were not tried; 2 it could not begin
`;

/** One file, and the one that undoes it. */
interface Migration {
  /** The file's name without its ending; so it is called in the organization too. */
  readonly name: string;
  readonly sql: string;
  readonly rollbackSql: string | undefined;
  readonly transaction: boolean;
}

interface Applied {
  readonly name: string;
  readonly status: string;
}

interface Reply {
  readonly alreadyApplied: boolean;
  readonly migration: { readonly statementCount: number; readonly durationMs: number };
  readonly warnings: readonly { readonly severity: string; readonly message: string; readonly line?: number }[];
}

/**
 * `postern migrate`: brings an organization up to date with a folder of SQL files.
 * @param words those behind the command
 * @returns the exit code
 */
export async function runMigrate(words: readonly string[], environment: Readonly<Record<string, string | undefined>>): Promise<number> {
  const asked = arguments_(words);
  if (typeof asked === 'string') {
    process.stderr.write(`postern: ${asked}\n\n${USAGE}`);
    return 2;
  }
  if (asked.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    const migrations = await readMigrations(asked.folder);
    const api = await findOrganization(environment);
    return await bringUpToDate(api, migrations, asked.dryRun);
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    process.stderr.write(`postern: ${error.message}\n`);
    return 2;
  }
}

function arguments_(words: readonly string[]): { readonly folder: string; readonly dryRun: boolean; readonly help: boolean } | string {
  try {
    const options = { 'dry-run': { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const;
    const { values, positionals } = parseArgs({ args: [...words], options, allowPositionals: true });
    const [folder = 'migrations', ...others] = positionals;
    if (others.length > 0) return `migrate takes one folder: ${others[0]}`;
    return { folder, dryRun: values['dry-run'] === true, help: values.help === true };
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

const NUMBERED = /^(\d+)[_-].+\.sql$/;
const DOWN = '.down.sql';
const WITHOUT_TRANSACTION = /^--\s*transaction:\s*false\s*$/;

/** @returns those of a folder, in their order @throws CommandError when it has none, or they cannot be put in order */
async function readMigrations(folder: string): Promise<readonly Migration[]> {
  const files = await readdir(folder).catch((error: Error) => {
    throw new CommandError(`${folder} cannot be read: ${error.message}`);
  });
  const sql = files.filter((file) => file.endsWith('.sql'));
  const unnumbered = sql.filter((file) => !NUMBERED.test(file));
  if (unnumbered.length > 0)
    throw new CommandError(`${join(folder, unnumbered[0] ?? '')}: its name must begin with a number, as 001_orders.sql`);
  const forward = sql.filter((file) => !file.endsWith(DOWN)).sort(byNumber);
  if (forward.length === 0) throw new CommandError(`there is no migration in ${folder}, such as 001_orders.sql`);
  const twice = forward.find((file, index) => index > 0 && numberOf(file) === numberOf(forward[index - 1] ?? ''));
  if (twice !== undefined) throw new CommandError(`${join(folder, twice)}: another migration has the same number`);
  const alone = sql.find((file) => file.endsWith(DOWN) && !forward.includes(file.replace(/\.down\.sql$/, '.sql')));
  if (alone !== undefined) throw new CommandError(`${join(folder, alone)}: there is no migration that it undoes`);
  return Promise.all(
    forward.map(async (file) => {
      const text = await readFile(join(folder, file), 'utf8');
      const down = file.replace(/\.sql$/, DOWN);
      const rollbackSql = sql.includes(down) ? await readFile(join(folder, down), 'utf8') : undefined;
      const [firstLine = ''] = text.split(/\r?\n/, 1);
      return { name: file.replace(/\.sql$/, ''), sql: text, rollbackSql, transaction: !WITHOUT_TRANSACTION.test(firstLine) };
    }),
  );
}

const numberOf = (file: string) => BigInt(NUMBERED.exec(file)?.[1] ?? 0);

function byNumber(a: string, b: string): number {
  const [first, second] = [numberOf(a), numberOf(b)];
  return first < second ? -1 : first > second ? 1 : a < b ? -1 : 1;
}

async function bringUpToDate(api: OrganizationApi, migrations: readonly Migration[], dryRun: boolean): Promise<number> {
  const listed = await api.call('GET', '/api/migrations');
  if (!listed.ok) throw new CommandError(describeProblem(listed.body as Problem));
  const applied = (listed.body as { readonly migrations: readonly Applied[] }).migrations;
  const done = new Set(applied.filter(({ status }) => status === 'applied').map(({ name }) => name));
  warnOfStrangers(applied, migrations);
  // Those that are there are sent too: the service refuses one whose text has changed since.
  return dryRun ? tryAll(api, migrations, done) : applyAll(api, migrations);
}

/** What others have applied is no failure: a colleague's branch may have been there. */
function warnOfStrangers(applied: readonly Applied[], migrations: readonly Migration[]): void {
  const own = new Set(migrations.map(({ name }) => name));
  const strange = applied.filter(({ name, status }) => status === 'applied' && /^\d/.test(name) && !own.has(name));
  for (const { name } of strange) process.stderr.write(`postern: the organization has ${name}, which is not in the folder\n`);
}

async function applyAll(api: OrganizationApi, migrations: readonly Migration[]): Promise<number> {
  let count = 0;
  for (const { name, sql, rollbackSql, transaction } of migrations) {
    const { ok, body } = await api.call('POST', '/api/migrations', {
      name,
      sql,
      transaction,
      ...(rollbackSql === undefined ? {} : { rollbackSql }),
    });
    if (!ok) return fail(name, body as Problem);
    const { alreadyApplied, migration, warnings } = body as Reply;
    if (alreadyApplied) continue;
    count += 1;
    process.stdout.write(
      `applied ${name} (${migration.statementCount} ${migration.statementCount === 1 ? 'statement' : 'statements'}, ${Math.round(migration.durationMs)} ms)\n`,
    );
    warn(name, warnings);
  }
  process.stdout.write(count === 0 ? 'nothing to do\n' : '');
  return 0;
}

/** One migration may need what another has made, so they are tried as one. */
async function tryAll(api: OrganizationApi, migrations: readonly Migration[], done: ReadonlySet<string>): Promise<number> {
  const pending = migrations.filter(({ name }) => !done.has(name));
  for (const { name, sql, transaction } of migrations) {
    if (!done.has(name)) continue;
    // Nothing is done: the service compares the texts, and refuses one that is another.
    const { ok, body } = await api.call('POST', '/api/migrations', { name, sql, transaction });
    if (!ok) return fail(name, body as Problem);
  }
  const firstAlone = pending.findIndex(({ transaction }) => !transaction);
  const together = firstAlone < 0 ? pending : pending.slice(0, firstAlone);
  if (together.length > 0) {
    const { sql, rollbackSql, placeOf } = joined(together);
    const reply = await api.call('POST', '/api/migrations', { name: 'postern migrate --dry-run', sql, dryRun: true, ...rollbackSql });
    if (!reply.ok) {
      const problem = reply.body as Problem;
      const at = lineOf(problem);
      if (at === undefined) return fail('migrations', problem);
      const { name, line } = placeOf(at);
      return fail(name, { ...problem, postgres: { line } });
    }
    for (const { name } of together) process.stdout.write(`would apply ${name}\n`);
    for (const { line, ...warning } of (reply.body as Reply).warnings) {
      const place = placeOf(line ?? 1);
      warn(place.name, [line === undefined ? warning : { ...warning, line: place.line }]);
    }
  }
  for (const { name } of pending.slice(together.length))
    process.stdout.write(
      `not tried: ${name}, ${firstAlone === pending.findIndex((one) => one.name === name) ? 'which runs without a transaction' : 'which comes behind one without a transaction'}\n`,
    );
  process.stdout.write(pending.length === 0 ? 'nothing to do\n' : '');
  return 0;
}

interface Joined {
  readonly sql: string;
  readonly rollbackSql: { readonly rollbackSql?: string };
  /** @param line of the whole, from 1 @returns the migration, and the line in its file */
  placeOf(line: number): { readonly name: string; readonly line: number };
}

function joined(migrations: readonly Migration[]): Joined {
  const starts: { readonly name: string; readonly first: number }[] = [];
  let sql = '';
  let line = 1;
  for (const { name, sql: text } of migrations) {
    starts.push({ name, first: line });
    // The last statement of a file needs no semicolon, and may end in a comment.
    const part = `${text}\n;\n`;
    sql += part;
    line += part.split('\n').length - 1;
  }
  const undo = migrations.map(({ rollbackSql }) => rollbackSql).reverse();
  const complete = undo.every((text) => text !== undefined);
  return {
    sql,
    rollbackSql: complete ? { rollbackSql: undo.join('\n;\n') } : {},
    placeOf(at) {
      const { name, first } = starts.findLast((start) => start.first <= at) ?? { name: '', first: 1 };
      return { name, line: at - first + 1 };
    },
  };
}

function warn(name: string, warnings: Reply['warnings']): void {
  for (const { severity, message, line } of warnings)
    process.stderr.write(`${severity.toLowerCase()}: ${name}.sql${line === undefined ? '' : `:${line}`}: ${message}\n`);
}

function fail(name: string, problem: Problem): number {
  const line = lineOf(problem);
  process.stderr.write(`failed: ${name}.sql${line === undefined ? '' : `:${line}`}: ${describeProblem(problem)}\n`);
  return 1;
}
