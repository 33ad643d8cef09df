import { setImmediate as nextTurn } from 'node:timers/promises';
import { applyEdits, applyEditsToBytes, type Edits, NO_EDITS } from '../syntax/edits.ts';
import {
  channelNamed,
  existingSchema,
  introducesSchemas,
  isCast,
  keywordAt,
  type LiteralMeaning,
  meaningOfParameter,
  NestedEdits,
  parameterExpression,
  preparedTransactionEnd,
  publicIn,
  type Scope,
  SqlReader,
} from '../syntax/names.ts';
import {
  Code,
  type Content,
  contentOf,
  identifierText,
  isIdentifier,
  isString,
  Lexer,
  type LexerOptions,
  skipWhitespace,
  Token,
} from '../syntax/scanner.ts';
import { channelPrefix, type SchemaTarget, schemasNamed, serverChannel, truncateChannel } from './names.ts';

export interface Rewriting<Sql extends string | Buffer> {
  /** The same object that was passed in, if nothing needed rewriting. */
  readonly sql: Sql;
  /** The replacements, in the order of the text. Everything outside them is as in the original. */
  readonly edits: Edits;
  /** The client's name by the server's name, for channels with long names. `clientChannel` needs them while the session lives. */
  readonly longChannels: ReadonlyMap<string, string>;
}

/** How the server reads the text. */
export type RewriteOptions = Pick<LexerOptions, 'standardConformingStrings' | 'doubleBytes'>;

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
 * have any encoding in which ASCII bytes stand only for ASCII characters, such as UTF-8; `doubleBytes` is for others (SJIS, BIG5, GBK,
 * GB18030, JOHAB, UHC).
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

interface EditFinderOptions extends LexerOptions {
  /** The text is bytes, decoded as Latin-1. */
  readonly bytes: boolean;
  /** Offset after the last mention of anything that can need an edit. */
  readonly until: number;
}

/** Do what `CREATE SCHEMA IF NOT EXISTS public` and `CREATE SCHEMA public` do in a database that has the schema. */
const SCHEMA_IS_SKIPPED = `DO 'BEGIN RAISE NOTICE USING ERRCODE = ''duplicate_schema'', MESSAGE = ''schema "public" already exists, skipping''; END'`;
const SCHEMA_EXISTS = `DO 'BEGIN RAISE USING ERRCODE = ''duplicate_schema'', MESSAGE = ''schema "public" already exists''; END'`;

/** Like PREPARE TRANSACTION where it is disabled, this fails, and with it the transaction. */
const NO_PREPARED_TRANSACTIONS = `DO 'BEGIN RAISE USING ERRCODE = ''feature_not_supported'', MESSAGE = ''prepared transactions are not supported''; END'`;

/** Reads a text token by token and collects the edits that make it refer to the organization's schema. */
class EditFinder extends SqlReader {
  readonly #target: SchemaTarget;
  readonly #edits: NestedEdits;
  readonly #qualifiers: Qualifiers;
  readonly #channels: ChannelEdits;

  constructor(text: string, target: SchemaTarget, options: EditFinderOptions) {
    super(text, options.until, options);
    this.#target = target;
    this.#edits = new NestedEdits(text, options.bytes);
    this.#qualifiers = new Qualifiers(this.#edits, target);
    this.#channels = new ChannelEdits(this.#edits, target, options.bytes);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#edits.edits;
  }

  /** The client's name by the server's name, for channels whose names were too long for the prefix. */
  get longChannels(): ReadonlyMap<string, string> {
    return this.#channels.longNames;
  }

  /** Only the statement itself has parameters of the client; in a literal, `$1` is a function's argument. */
  protected override parameter(scope: Scope): void {
    if (scope.outer !== undefined) return;
    const meaning = meaningOfParameter(scope);
    if (meaning === undefined) return;
    const { lexer } = scope;
    const { schema, database } = this.#target;
    if (meaning === 'database') {
      if (database !== undefined) this.#edits.add(scope, lexer.start, lexer.end, parameterExpression(scope, meaning, schema, database));
    } else {
      this.#edits.add(scope, lexer.start, lexer.end, parameterExpression(scope, meaning, 'public', schema));
    }
  }

  protected override word(scope: Scope): void {
    const { text, start, end } = scope.lexer;
    const keyword = keywordAt(text, start, end);
    switch (keyword) {
      case undefined:
        return;
      case 'public':
        this.#qualifiers.read(scope, start, end);
        break;
      case 'schema':
        this.#schema(scope);
        break;
      case 'search_path':
        this.searchPath(scope);
        break;
      case 'standard_conforming_strings':
        this.strings(scope);
        break;
      case 'listen':
      case 'unlisten':
      case 'notify':
        this.#channels.statement(scope, keyword);
        break;
      case 'pg_notify':
        this.#channels.call(scope);
        break;
      case 'prepare':
        if (this.#target.hasPreparedTransactions) this.#prepare(scope);
        break;
      default:
        scope.note(keyword);
    }
  }

  protected override quotedIdentifier(scope: Scope): void {
    const { text, kind, start, end } = scope.lexer;
    const name = kind === Token.UnicodeIdentifier ? contentOf(scope.lexer) : undefined;
    switch (name?.text ?? text.slice(start + 1, end - 1)) {
      case 'public':
        this.#qualifiers.read(scope, name?.start(0) ?? start + 1, name?.end(name.text.length) ?? end - 1);
        break;
      case 'pg_notify':
        this.#channels.call(scope);
        break;
      case 'search_path':
        this.searchPath(scope);
        break;
      case 'standard_conforming_strings':
        this.strings(scope);
        break;
    }
  }

  #schema(scope: Scope): void {
    if (!introducesSchemas(scope)) return;
    const existing = existingSchema(scope, this.#target.schema);
    if (existing === undefined) {
      scope.expect('schema');
    } else {
      this.#edits.add(scope, scope.last.start, existing.end, existing.isSkipped ? SCHEMA_IS_SKIPPED : SCHEMA_EXISTS);
      scope.lexer.moveTo(existing.end);
    }
  }

  protected override schemaName(scope: Scope): void {
    const { lexer } = scope;
    if (identifierText(lexer) === 'public') this.#edits.add(scope, lexer.start, lexer.end, this.#target.schema);
  }

  #prepare(scope: Scope): void {
    const end = preparedTransactionEnd(scope);
    if (end < 0) return;
    this.#edits.add(scope, scope.lexer.start, end, NO_PREPARED_TRANSACTIONS);
    scope.lexer.moveTo(end);
  }

  protected override literal(scope: Scope, meaning: LiteralMeaning | undefined): void {
    const content = meaning === undefined ? undefined : contentOf(scope.lexer);
    if (content === undefined) return;
    const { text } = content;
    const { schema, database } = this.#target;
    switch (meaning) {
      case 'sql':
        this.enter(scope, content, lastMention(text));
        break;
      case 'name':
      case 'like':
      case 'expression':
      case 'array':
        for (const [start, end] of publicIn(text, meaning)) this.#edits.addWithin(scope, content, start, end, schema);
        break;
      case 'database':
        if (text === schema && database !== undefined) this.#edits.addWithin(scope, content, 0, text.length, database);
        break;
      case 'schema':
      case 'path':
        for (const [start, end] of schemasNamed(text, 'public')) this.#edits.addWithin(scope, content, start, end, schema);
        break;
    }
  }

  protected override endStatement(scope: Scope): void {
    this.#qualifiers.endStatement(scope);
  }
}

/**
 * Adds the organization's prefix to the names of channels that do not have it. The prefix is a secret, but other organizations can
 * read function bodies and rules in the catalogs. So there a statement becomes a call of one of the platform's functions, which
 * knows the prefix of the role that has logged in.
 * @see createChannelFunctions
 */
class ChannelEdits {
  /** The client's name by the server's name, for channels whose names were too long for the prefix. */
  readonly longNames = new Map<string, string>();
  readonly #edits: NestedEdits;
  readonly #channels: string;
  readonly #prefix: string;
  readonly #pgNotify: string | undefined;
  readonly #bytes: boolean;

  constructor(edits: NestedEdits, target: SchemaTarget, bytes: boolean) {
    this.#edits = edits;
    this.#channels = target.channels ?? target.schema;
    this.#prefix = channelPrefix(this.#channels);
    this.#pgNotify = target.pgNotify;
    this.#bytes = bytes;
  }

  /** At LISTEN, UNLISTEN or NOTIFY. */
  statement(scope: Scope, verb: 'listen' | 'unlisten' | 'notify'): void {
    const name = channelNamed(scope);
    if (name === undefined) return;
    if (scope.inRule || scope.outer !== undefined) this.#stored(scope, verb, name);
    else if (name.kind === Token.Word) this.#word(scope, name);
    else this.#quoted(scope, contentOf(name));
  }

  /** At pg_notify: `pg_notify(` and `pg_catalog.pg_notify(` become `postern.pg_notify(`. */
  call(scope: Scope): void {
    const { lexer, last, second } = scope;
    if (this.#pgNotify === undefined || scope.nextCode() !== Code.Open || scope.isOneOf(last, ['function', 'routine'])) return;
    const qualified = scope.isPunctuation(last, Code.Dot);
    if (qualified && scope.nameOf(second) !== 'pg_catalog') return;
    this.#edits.add(scope, qualified ? second.start : lexer.start, lexer.end, this.#pgNotify);
  }

  /** `NOTIFY a, 'x'` becomes `CALL postern.notify('a', 'x')`. A rule cannot contain CALL, so there it becomes a SELECT that returns no rows. */
  #stored(scope: Scope, verb: 'listen' | 'unlisten' | 'notify', name: Lexer): void {
    const written = this.#literal(identifierText(name));
    if (written === undefined) return;
    const payload = verb === 'notify' ? payloadAfter(scope, name) : undefined;
    const call = scope.inRule ? `SELECT FROM ${this.#pgNotify ?? 'pg_notify'}(${written}` : `CALL postern.${verb}(${written}`;
    const end = scope.inRule ? ') OFFSET 1' : ')';
    const empty = scope.inRule ? ", ''" : '';
    this.#edits.add(scope, scope.lexer.start, name.end, payload === undefined ? call + empty + end : call);
    if (payload !== undefined) this.#edits.add(scope, payload.end, payload.end, end);
  }

  /** A channel's name as a string constant; undefined if it would need escapes. Such a channel gets no prefix, so nobody can listen to it. */
  #literal(name: string): string | undefined {
    if (name.includes('\\')) return undefined;
    const cut = truncateChannel(this.#decoded(name));
    const text = this.#bytes ? Buffer.from(cut).toString('latin1') : cut;
    return `'${text.replaceAll("'", "''")}'`;
  }

  #word(scope: Scope, name: Lexer): void {
    const folded = identifierText(name);
    this.#edits.add(scope, name.start, name.end, `"${this.#digestName(folded) ?? this.#prefix + folded}"`);
  }

  #quoted(scope: Scope, content: Content | undefined): void {
    if (content === undefined || content.text.startsWith(this.#prefix)) return;
    const digested = this.#digestName(content.text);
    if (digested === undefined) this.#edits.addWithin(scope, content, 0, 0, this.#prefix);
    else this.#edits.addWithin(scope, content, 0, content.text.length, digested);
  }

  /** The server's name for a channel whose name is too long for the prefix; undefined for other channels. */
  #digestName(written: string): string | undefined {
    const name = truncateChannel(this.#decoded(written));
    const server = serverChannel(name, this.#channels);
    if (server === this.#prefix + name) return undefined;
    this.longNames.set(server, name);
    return server;
  }

  #decoded(text: string): string {
    return this.#bytes ? Buffer.from(text, 'latin1').toString() : text;
  }
}

/** A lexer at the string after `NOTIFY channel,`; undefined if there is none. */
function payloadAfter(scope: Scope, name: Lexer): Lexer | undefined {
  const ahead = scope.ahead();
  ahead.moveTo(name.end);
  ahead.next();
  return scope.isPunctuation(ahead, Code.Comma) && isString(ahead.next()) ? ahead : undefined;
}

/** In a larger statement, `public` is always the schema. */
const RESOLVED_MAX_CHARACTERS = 256 * 1024;

/** Keywords after which `public.name` is never a column. */
const BEFORE_OBJECTS = ['from', 'join', 'into', 'update', 'table', 'only', 'view', 'exists', 'to', 'as', 'collate', 'copy', 'references'];

/** Replaces `public` by the target's schema where it qualifies a name. */
class Qualifiers {
  readonly #edits: NestedEdits;
  readonly #target: SchemaTarget;

  constructor(edits: NestedEdits, target: SchemaTarget) {
    this.#edits = edits;
    this.#target = target;
  }

  /** Reads the identifier `public`, which is written from `start` to `end`. */
  read(scope: Scope, start: number, end: number): void {
    const { lexer, last } = scope;
    const dotted = scope.isPunctuation(last, Code.Dot);
    const dot = skipWhitespace(lexer.text, lexer.end);
    if (lexer.text.charCodeAt(dot) !== Code.Dot || lexer.text.charCodeAt(dot + 1) === Code.Dot) {
      if (!dotted) scope.hasBarePublic = true;
      return;
    }
    if (dotted ? !this.#replaceDatabase(scope) : isRow(scope, dot + 1)) return;
    const edit = this.#edits.add(scope, start, end, this.#target.schema);
    const isObject = dotted || isCast(lexer.text, last) || scope.isOneOf(last, BEFORE_OBJECTS);
    if (!isObject && start - scope.statementStart < RESOLVED_MAX_CHARACTERS) scope.candidates.push({ edit, end: lexer.end });
  }

  /** Whether `name.` before the current token is the name of the database; if so, replaces it by the real name. */
  #replaceDatabase(scope: Scope): boolean {
    const { database, schema } = this.#target;
    const { second, third } = scope;
    const name = scope.nameOf(second);
    if (database === undefined || scope.isPunctuation(third, Code.Dot) || (name !== schema && name !== database)) return false;
    const quoted = second.kind === Token.QuotedIdentifier ? 1 : 0;
    if (name !== database) this.#edits.add(scope, second.start + quoted, second.end - quoted, database);
    return true;
  }

  /** Ends a statement, and removes those edits that turned out to be of a relation's name. */
  endStatement(scope: Scope): void {
    const { candidates, lexer, hasBarePublic, statementStart, options } = scope;
    if (!hasBarePublic || candidates.length === 0 || lexer.start - statementStart > RESOLVED_MAX_CHARACTERS) return;
    const relations = relationQualifiers(lexer.text, statementStart, lexer.start, options);
    if (relations.size > 0) this.#edits.remove(new Set(candidates.filter(({ end }) => relations.has(end)).map(({ edit }) => edit)));
  }
}

/** `public.*` is the row of a relation, but `OPERATOR(public.*)` is an operator. */
function isRow(scope: Scope, offset: number): boolean {
  const { lexer, last, second } = scope;
  const ahead = scope.ahead();
  ahead.moveTo(offset);
  if (ahead.next() !== Token.Operator || lexer.text.slice(ahead.start, ahead.end) !== '*') return false;
  return !scope.isWord(last, 'operator') && !scope.isOneOf(second, ['operator', 'if']);
}

/** What the names in a clause are: relations (`FROM`), queries that WITH defines, arguments of a function, or anything else. */
type Clause = 'relations' | 'with' | 'arguments' | 'other';

const CLAUSES = new Map<string, Clause>([
  ...clause('relations', 'from join into update using'),
  ...clause('with', 'with'),
  ...clause(
    'other',
    'select delete where on set values group order having window limit offset fetch returning union intersect except when',
  ),
]);

function clause(kind: Clause, words: string): [string, Clause][] {
  return words.split(' ').map((word) => [word, kind]);
}

/** Statements whose FROM and TO name roles. */
const WITHOUT_RELATIONS = new Set(['grant', 'revoke', 'alter', 'drop', 'comment', 'set', 'reset', 'listen', 'notify', 'unlisten']);

/**
 * Finds the qualifiers `public` in one statement that name a relation and not the schema. Those are the qualifiers of columns
 * (`public.id`), if the statement has a relation called `public`: an alias, a WITH query, or a table.
 * @param options how the text is read
 * @returns the offsets after these qualifiers
 */
function relationQualifiers(text: string, from: number, to: number, options: LexerOptions): ReadonlySet<number> {
  const lexer = new Lexer(text, { ...options, offset: from });
  const clauses: Clause[] = ['other'];
  const columns = new Set<number>();
  let declared = false;
  let before = '';
  let second = '';
  for (let kind = lexer.next(); kind !== Token.End && lexer.start < to; kind = lexer.next()) {
    const current = clauses.at(-1) ?? 'other';
    const word = isIdentifier(kind) ? identifierText(lexer) : text.charAt(lexer.start);
    if (before === '' && WITHOUT_RELATIONS.has(word)) break;
    if (word === 'public' && before !== '.') {
      declared ||= declares(current, text, lexer.end);
      if (current !== 'relations' && isColumn(text, lexer.end)) columns.add(lexer.end);
    }
    if (kind === Token.Word) clauses[clauses.length - 1] = clauseAfter(word, before, current);
    else if (kind === Token.Punctuation) nest(clauses, text.charCodeAt(lexer.start), before, second);
    second = before;
    before = word;
  }
  return declared ? columns : new Set();
}

/**
 * FROM may also separate arguments (`extract(epoch FROM t)`) or belong to IS DISTINCT FROM. After FOR UPDATE, a policy names roles, and a
 * query relations that its FROM has named. `RETURNING WITH (OLD AS public)` defines no query.
 */
function clauseAfter(word: string, before: string, current: Clause): Clause {
  if (word === 'with' && before === 'returning') return current;
  if (word === 'from' && (before === 'distinct' || current === 'arguments')) return current;
  if (word === 'update' && before === 'for') return 'other';
  return CLAUSES.get(word) ?? current;
}

/** Whether the `public` that ends at the offset is the name of a relation. */
function declares(current: Clause, text: string, end: number): boolean {
  const next = text.charCodeAt(skipWhitespace(text, end));
  if (current === 'with') return next !== Code.Comma && next !== Code.Dot;
  return current === 'relations' && next !== Code.Dot;
}

/** Whether the `public` that ends at the offset qualifies one name, without a third part and without arguments. */
function isColumn(text: string, end: number): boolean {
  const lexer = new Lexer(text, { offset: end });
  lexer.next();
  if (text.charCodeAt(lexer.start) !== Code.Dot || !isIdentifier(lexer.next())) return false;
  const next = text.charCodeAt(skipWhitespace(text, lexer.end));
  return next !== Code.Dot && next !== Code.Open;
}

/** After these tokens in FROM, a parenthesis encloses relations, not arguments or columns. */
const BEFORE_RELATIONS = ['from', 'join', 'lateral', ',', '('];

function nest(clauses: Clause[], code: number, before: string, second: string): void {
  const relations = (clauses.at(-1) === 'relations' && BEFORE_RELATIONS.includes(before)) || (before === 'with' && second === 'returning');
  if (code === Code.Open) clauses.push(relations ? 'relations' : 'arguments');
  if (code === Code.Close && clauses.length > 1) clauses.pop();
}

/**
 * A statement without any of these strings and without an identifier `U&"…"` needs no rewriting. `public` is in every name of the
 * schema; LISTEN, UNLISTEN, NOTIFY and pg_notify name channels; PREPARE TRANSACTION is refused; the others are in the names of columns,
 * functions and types that say what a parameter means.
 */
const SEARCHED = [
  ...['public', 'listen', 'notify', 'prepar', 'schema', 'nspnam', 'datnam'],
  ...['catalo', 'databa', 'nextva', 'n_size', 'privil', 'regcla', 'regtyp', 'regnam', 'search', 'serial', 'setval', 'to_reg'],
].map((word) => Buffer.from(word));
/** The length of each of these strings. */
const MENTION_LENGTH = 6;

/** This bit is set in a skip if one of the strings can begin with the character; the other bits are the distance. */
const BEGINS = 8;

/** The shift table of Horspool's algorithm, from right to left: by character, the distance to the next offset where a string may begin. */
const SKIPS = new Uint8Array(256).fill(MENTION_LENGTH);
/** The searched strings by the code of their first letter, in lower case: with the bit set in each character that makes a letter lower case. */
const BY_LETTER: Buffer[][] = Array.from({ length: 256 }, () => []);

for (let at = MENTION_LENGTH - 1; at > 0; at--) {
  for (const word of SEARCHED) SKIPS[word[at] as number] = SKIPS[(word[at] as number) & ~0x20] = at;
}
for (const word of SEARCHED) {
  const letter = word[0] as number;
  SKIPS[letter] = SKIPS[letter & ~0x20] = (SKIPS[letter] as number) | BEGINS;
  BY_LETTER[letter]?.push(word.map((code) => code | 0x20) as Buffer);
}

/**
 * The offset after the last of these strings, in upper or lower case, or of what begins an identifier with escapes, between `from` and `to`; -1 if there is none.
 * Reads about one character in four.
 */
export function lastMention(text: string | Buffer, from = 0, to = text.length): number {
  const mention = typeof text === 'string' ? inString(text, from, to) : inBytes(text, from, to);
  return Math.max(
    mention,
    typeof text === 'string' ? lastEscape(text, from, to) : lastEscape(text.subarray(from, to), 0, to - from) + from,
  );
}

/** The offset after the last `&"`, of `U&"publ\0069c"`; negative if there is none. Most texts have no `&`, which is found out in a third of the time. */
function lastEscape(text: string | Buffer, from: number, to: number): number {
  if (typeof text !== 'string' && text.lastIndexOf(Code.Ampersand) < 0) return Number.NEGATIVE_INFINITY;
  const at = text.lastIndexOf('&"', to - 2);
  return at < from ? Number.NEGATIVE_INFINITY : at + 2;
}

function inBytes(bytes: Buffer, from: number, to: number): number {
  for (let at = to - MENTION_LENGTH; at >= from; ) {
    const code = bytes[at] as number;
    const skip = SKIPS[code] as number;
    if (skip >= BEGINS) {
      for (const word of BY_LETTER[code | 0x20] as Buffer[]) {
        let matched = 1;
        while (matched < MENTION_LENGTH && ((bytes[at + matched] as number) | 0x20) === word[matched]) matched++;
        if (matched === MENTION_LENGTH) return at + MENTION_LENGTH;
      }
    }
    at -= skip & (BEGINS - 1);
  }
  return -1;
}

function inString(text: string, from: number, to: number): number {
  for (let at = to - MENTION_LENGTH; at >= from; ) {
    const code = text.charCodeAt(at);
    const skip = code < 256 ? (SKIPS[code] as number) : MENTION_LENGTH;
    if (skip >= BEGINS) {
      for (const word of BY_LETTER[code | 0x20] as Buffer[]) {
        let matched = 1;
        while (matched < MENTION_LENGTH && (text.charCodeAt(at + matched) | 0x20) === word[matched]) matched++;
        if (matched === MENTION_LENGTH) return at + MENTION_LENGTH;
      }
    }
    at -= skip & (BEGINS - 1);
  }
  return -1;
}
