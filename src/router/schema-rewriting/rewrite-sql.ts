import { setImmediate as nextTurn } from 'node:timers/promises';
import { applyEdits, applyEditsToBytes, type Edits, NO_EDITS } from '../../syntax/edits.ts';
import { EditFinder } from './edit-finder.ts';
import { lastMention, MENTION_LENGTH } from './prefilter.ts';
import type { SchemaTarget } from './schema-target.ts';

export interface Rewriting<Sql extends string | Buffer> {
  /** The same object that was passed in, if nothing needed rewriting. */
  readonly sql: Sql;
  /** The replacements, in the order of the text. Everything outside them is as in the original. */
  readonly edits: Edits;
  /** The client's name by the server's name, for channels with long names. `clientChannel` needs them while the session lives. */
  readonly longChannels: ReadonlyMap<string, string>;
}

export interface RewriteOptions {
  /** The session's standard_conforming_strings. Default: on. */
  readonly standardConformingStrings?: boolean;
}

/** A text of this size or more needs {@link rewriteLargeSql}, which does not block other sessions. A smaller one takes about a millisecond. */
export const LARGE_SQL_BYTES = 16 * 1024;

/** How much is searched, read or edited in one time slice of about a millisecond. */
const SLICE_SEARCHED_BYTES = 1024 * 1024;
const SLICE_READ_BYTES = 32 * 1024;
const SLICE_EDITS = 2048;

const NO_CHANNELS: ReadonlyMap<string, string> = new Map();

const untouched = <Sql extends string | Buffer>(sql: Sql): Rewriting<Sql> => ({ sql, edits: NO_EDITS, longChannels: NO_CHANNELS });

/**
 * Rewrites a client's SQL for its organization: wherever `public` names a schema, it becomes the organization's schema, and
 * channels get the organization's prefix. Any text is accepted, valid SQL or not. The time is linear in its length. A Buffer may
 * have any encoding in which ASCII bytes stand only for ASCII characters, such as UTF-8. In other encodings (SJIS, BIG5, GBK,
 * GB18030, JOHAB, UHC) no character inside `E'…'` may end in a backslash.
 *
 * `public` may be the name of a relation or of a schema (`public.id`). It is the relation if the statement has one of that name
 * (`FROM users AS public`). `public.*` is always the row of a relation.
 *
 * Some SQL is not rewritten, because it cannot be told from data: literals in predicates (except `nspname = 'public'` on the
 * catalogs), values of parameters, SQL that a function builds in a variable before EXECUTE, and arguments of format(). A target
 * whose schema is `public` needs no rewriting.
 */
export function rewriteSql(sql: string, target: SchemaTarget, options?: RewriteOptions): Rewriting<string>;
export function rewriteSql(sql: Buffer, target: SchemaTarget, options?: RewriteOptions): Rewriting<Buffer>;
export function rewriteSql(sql: string | Buffer, target: SchemaTarget, options?: RewriteOptions): Rewriting<string | Buffer> {
  const until = lastMention(sql);
  if (until < 0 || target.schema === 'public') return untouched(sql);
  const bytes = typeof sql !== 'string';
  const text = bytes ? sql.toString('latin1') : sql;
  const finder = new EditFinder(text, target, { ...options, bytes, until });
  finder.run();
  const { edits, longChannels } = finder;
  if (edits.length === 0) return untouched(sql);
  const edited = applyEdits(text, edits);
  return { sql: bytes ? Buffer.from(edited, 'latin1') : edited, edits, longChannels };
}

/** As {@link rewriteSql}, in time slices of about a millisecond, between which the event loop handles other events. */
export async function rewriteLargeSql(sql: Buffer, target: SchemaTarget, options?: RewriteOptions): Promise<Rewriting<Buffer>> {
  const until = await searchInSlices(sql);
  if (until < 0 || target.schema === 'public') return untouched(sql);
  const finder = new EditFinder(sql.toString('latin1'), target, { ...options, bytes: true, until });
  do await nextTurn();
  while (!finder.run(SLICE_READ_BYTES));
  await nextTurn();
  const { edits, longChannels } = finder;
  return edits.length === 0 ? untouched(sql) : { sql: await editInSlices(sql, edits), edits, longChannels };
}

/** Whether the edits of a text depend on `standard_conforming_strings`. */
export function readsDifferently(sql: string | Buffer, target: SchemaTarget): boolean {
  if (lastMention(sql) < 0) return false;
  const text = typeof sql === 'string' ? sql : sql.toString('latin1');
  return rewriteSql(text, target).sql !== rewriteSql(text, target, { standardConformingStrings: false }).sql;
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
