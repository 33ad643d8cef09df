import { setImmediate as nextTurn } from 'node:timers/promises';
import { EditFinder } from './edit-finder.ts';
import { applyEdits, applyEditsToBytes, type Edits } from './edits/edits.ts';
import type { SchemaTarget } from './schema-target.ts';
import { lastMention, MENTION_LENGTH } from './tokens/mention.ts';

export interface Rewriting<Sql extends string | Buffer> {
  /** The very value that was given where nothing needed rewriting. */
  readonly sql: Sql;
  /** What was replaced, in the order of the text. Everything outside of it is as in the original. */
  readonly edits: Edits;
  /** Server's name → client's, for channels whose names did not fit: for `clientChannel`, as long as the session lives. */
  readonly longChannels: ReadonlyMap<string, string>;
}

export interface RewriteOptions {
  /** The session's standard_conforming_strings. Default on. */
  readonly standardConformingStrings?: boolean;
}

/** From this size on {@link rewriteLargeSql} keeps other sessions from waiting: below, rewriting takes a millisecond or so. */
export const LARGE_SQL_BYTES = 16 * 1024;

/** What is done without a pause, a millisecond or so: searched, read, edited. */
const SLICE_SEARCHED_BYTES = 1024 * 1024;
const SLICE_READ_BYTES = 32 * 1024;
const SLICE_EDITS = 2048;

const NO_EDITS: Edits = [];
const NO_CHANNELS: ReadonlyMap<string, string> = new Map();

const untouched = <Sql extends string | Buffer>(sql: Sql): Rewriting<Sql> => ({ sql, edits: NO_EDITS, longChannels: NO_CHANNELS });

/**
 * Puts the SQL of a client into the place of its organization: `public`, wherever it names a schema, becomes the place's
 * schema, and names of channels get the organization before them. Works on any text, valid SQL or not, in time linear in
 * its length. A Buffer is taken as UTF-8, or any other encoding that has ASCII bytes for ASCII characters only; those
 * that have not (SJIS, BIG5, GBK, GB18030, JOHAB, UHC) are rewritten as long as no character of theirs ends in a
 * backslash inside `E'…'`.
 *
 * Where `public` could be a relation's name as well as a schema's (`public.id`), it is the relation's if the statement
 * has a relation of that name (`FROM users AS public`); `public.*` is always the row of a relation.
 *
 * What is left alone because it cannot be told from data: literals in predicates (except `nspname = 'public'` on the catalogs), values of
 * parameters, SQL put together in a variable before EXECUTE gets it, arguments of format(). A place whose schema is
 * `public` needs nothing.
 */
export function rewriteSql(sql: string, place: SchemaTarget, options?: RewriteOptions): Rewriting<string>;
export function rewriteSql(sql: Buffer, place: SchemaTarget, options?: RewriteOptions): Rewriting<Buffer>;
export function rewriteSql(sql: string | Buffer, place: SchemaTarget, options?: RewriteOptions): Rewriting<string | Buffer> {
  const until = lastMention(sql);
  if (until < 0 || place.schema === 'public') return untouched(sql);
  const bytes = typeof sql !== 'string';
  const text = bytes ? sql.toString('latin1') : sql;
  const rewriter = new EditFinder(text, place, { ...options, bytes, until });
  rewriter.run();
  const { edits, longChannels } = rewriter;
  if (edits.length === 0) return untouched(sql);
  const edited = applyEdits(text, edits);
  return { sql: bytes ? Buffer.from(edited, 'latin1') : edited, edits, longChannels };
}

/** As {@link rewriteSql}, giving way to whatever else waits to run after every millisecond or so. */
export async function rewriteLargeSql(sql: Buffer, place: SchemaTarget, options?: RewriteOptions): Promise<Rewriting<Buffer>> {
  const until = await searchInSlices(sql);
  if (until < 0 || place.schema === 'public') return untouched(sql);
  const rewriter = new EditFinder(sql.toString('latin1'), place, { ...options, bytes: true, until });
  do await nextTurn();
  while (!rewriter.run(SLICE_READ_BYTES));
  await nextTurn();
  const { edits, longChannels } = rewriter;
  return edits.length === 0 ? untouched(sql) : { sql: await editInSlices(sql, edits), edits, longChannels };
}

async function searchInSlices(sql: Buffer): Promise<number> {
  for (let to = sql.length; to >= MENTION_LENGTH; ) {
    const from = Math.max(0, to - SLICE_SEARCHED_BYTES);
    const found = lastMention(sql, from, to);
    if (found >= 0 || from === 0) return found;
    to = from + MENTION_LENGTH - 1;
    await nextTurn();
  }
  return -1;
}

async function editInSlices(sql: Buffer, edits: Edits): Promise<Buffer> {
  const editing = applyEditsToBytes(sql, edits);
  for (let count = 1; ; count++) {
    const { done, value } = editing.next();
    if (done) return value;
    if (count % SLICE_EDITS === 0) await nextTurn();
  }
}
