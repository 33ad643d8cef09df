import { isQuotedIdentifier, isString, Lexer, lowerCase, Token, type TokenKind } from '../../../src/syntax/scanner.ts';
import { USUAL_FUNCTIONS } from '../../../src/syntax/side-effects.ts';
import type { Routine, Schema, SchemaColumn, SchemaTable } from '../api/database-schema.ts';
import { quoteIdentifier, RESERVED_WORDS } from '../quoting.ts';

/** What can stand at the cursor. */
export interface Option {
  readonly label: string;
  /** What it is: a column's type, a function's arguments. */
  readonly detail: string;
  /** As SQL writes it. */
  readonly sql: string;
  /** What follows: a dot and a name, or arguments. */
  readonly goesOn?: 'dot' | 'arguments';
}

/** What needs no schema in front of it. */
const USUAL_SCHEMA = 'public';
const OPTIONS_MAX = 100;
/** Which kind of names comes first, where several answer as well. Fractions order the keywords. */
const WEIGHT = { column: 9, keyword: 8, here: 7, function: 5, builtIn: 4.5, table: 4, schema: 3, type: 3, other: 2 };
const TABLE_WEIGHT = { query: 9, table: 8, schema: 7, function: 4, keyword: 2 };

/** The best of what can stand at the cursor, the best first. */
export function optionsAt(cursor: Cursor, schema: Schema | undefined): Option[] {
  const ranking = new Ranking<Option>(cursor.typed);
  const names = new Names(ranking, cursor, schema);
  if (cursor.path.length > 0) names.addMembers();
  else if (cursor.expectsTable) names.addTables();
  else names.addAll();
  return ranking.best(OPTIONS_MAX);
}

class Names {
  readonly #ranking: Ranking<Option>;
  readonly #cursor: Cursor;
  readonly #schema: Schema | undefined;

  constructor(ranking: Ranking<Option>, cursor: Cursor, schema: Schema | undefined) {
    this.#ranking = ranking;
    this.#cursor = cursor;
    this.#schema = schema;
  }

  /** What stands behind a dot: columns of a table or an alias, tables and functions of a schema. */
  addMembers(): void {
    const { path, tables } = this.#cursor;
    const [first, second] = path.slice(-2);
    if (first === undefined) return;
    if (second !== undefined) {
      this.#addColumns(this.#find(first, second), undefined);
      return;
    }
    const named = tables.find(({ name, alias }) => (alias ?? name) === first) ?? tables.find(({ name }) => name === first);
    const table = named ? this.#tableOf(named) : this.#find(undefined, first);
    if (table !== undefined) this.#addColumns(table, undefined);
    this.#addTablesOf((schema) => schema === first, TABLE_WEIGHT.table, true);
    this.#addRoutines((schema) => schema === first, TABLE_WEIGHT.function);
  }

  addTables(): void {
    const { queries } = this.#cursor;
    this.#ranking.add(queries, TABLE_WEIGHT.query, asIs, (name) => this.#name(name, 'WITH query'));
    this.#addTablesOf(() => true, TABLE_WEIGHT.table, false);
    this.#addSchemas(TABLE_WEIGHT.schema);
    this.#addRoutines((schema) => schema === USUAL_SCHEMA, TABLE_WEIGHT.function);
    if (this.#isTyped) this.#addKeywords(USUAL_KEYWORDS, TABLE_WEIGHT.keyword);
  }

  addAll(): void {
    const { tables } = this.#cursor;
    const here = tables.flatMap((named) => {
      const table = this.#tableOf(named);
      return table === undefined ? [] : [{ named, table }];
    });
    const counts = new Map<string, number>();
    for (const { table } of here) for (const { name } of table.columns) counts.set(name, (counts.get(name) ?? 0) + 1);
    for (const { named, table } of here) this.#addColumns(table, here.length > 1 ? { named, counts } : undefined);
    this.#ranking.add(tables, WEIGHT.here, shortName, (named) => ({
      ...this.#name(shortName(named), named.alias === undefined ? 'table' : named.name),
      goesOn: 'dot',
    }));
    if (!this.#isTyped) return;
    this.#addKeywords(USUAL_KEYWORDS, WEIGHT.keyword);
    this.#addKeywords(OTHER_KEYWORDS, WEIGHT.other);
    this.#addKeywords(NAMELIKE_KEYWORDS, WEIGHT.other);
    this.#addKeywords(TYPES, WEIGHT.type, 'type');
    if (!this.#cursor.isQuoted)
      this.#ranking.add(USUAL_FUNCTIONS, WEIGHT.builtIn, asIs, (name) => ({
        label: name,
        detail: 'function',
        sql: name,
        goesOn: 'arguments',
      }));
    this.#addRoutines((schema) => schema === USUAL_SCHEMA, WEIGHT.function);
    this.#addTablesOf(() => true, WEIGHT.table, false);
    this.#addSchemas(WEIGHT.schema);
    const types = this.#schema?.types ?? [];
    this.#ranking.add(types, WEIGHT.type, nameOf, ({ schema, name, kind }) => this.#qualified(schema, name, kind));
  }

  get #isTyped(): boolean {
    return this.#cursor.typed !== '';
  }

  /** @param several with the tables of the statement where there are more: a column that several have is written with its table */
  #addColumns(
    table: SchemaTable | undefined,
    several: { readonly named: NamedTable; readonly counts: ReadonlyMap<string, number> } | undefined,
  ): void {
    this.#ranking.add(table?.columns ?? [], WEIGHT.column, nameOf, (column) => {
      const option = this.#name(column.name, detailOf(column));
      if (several === undefined) return option;
      const prefix = shortName(several.named);
      const detail = `${option.detail} · ${prefix}`;
      if (several.counts.get(column.name) === 1 || this.#cursor.isQuoted) return { ...option, detail };
      return { label: `${prefix}.${column.name}`, detail: option.detail, sql: `${quoteIdentifier(prefix)}.${option.sql}` };
    });
  }

  #addTablesOf(isAsked: (schema: string) => boolean, weight: number, isShort: boolean): void {
    const tables = this.#schema?.tables ?? [];
    for (const isUsual of [true, false]) {
      const asked = tables.filter(({ schema }) => (schema === USUAL_SCHEMA) === isUsual && isAsked(schema));
      // Those that need no schema come first.
      this.#ranking.add(asked, isUsual ? weight : weight - 0.5, nameOf, ({ schema, name, kind }) =>
        isShort ? this.#name(name, kind) : this.#qualified(schema, name, kind),
      );
    }
  }

  #addRoutines(isAsked: (schema: string) => boolean, weight: number): void {
    const routines = this.#schema?.functions.filter(({ schema, returns }) => isAsked(schema) && returns !== 'trigger') ?? [];
    this.#ranking.add(routines, weight, nameOf, (routine) => ({ ...this.#name(routine.name, signatureOf(routine)), goesOn: 'arguments' }));
  }

  #addSchemas(weight: number): void {
    const schemas = this.#schema?.schemas ?? [];
    this.#ranking.add(schemas, weight, nameOf, ({ name }) => ({ ...this.#name(name, 'schema'), goesOn: 'dot' }));
  }

  #addKeywords(words: readonly string[], weight: number, detail = ''): void {
    if (this.#cursor.isQuoted) return;
    const { typed } = this.#cursor;
    const isUpper = /[A-Z]/.test(typed) && typed === typed.toUpperCase();
    words.forEach((word, index) => {
      const sql = isUpper ? word.toUpperCase() : word;
      this.#ranking.add([word], weight - index / words.length, asIs, () => ({ label: sql, detail, sql }));
    });
  }

  #qualified(schema: string, name: string, detail: string): Option {
    const option = this.#name(name, detail);
    if (schema === USUAL_SCHEMA) return option;
    return { ...option, label: `${schema}.${name}`, sql: `${quoteIdentifier(schema)}.${option.sql}` };
  }

  /** In quotes too where a quote is typed. */
  #name(name: string, detail: string): Option {
    const sql = quoteIdentifier(name);
    return { label: name, detail, sql: this.#cursor.isQuoted && sql === name ? `"${name}"` : sql };
  }

  #tableOf({ schema, name }: NamedTable): SchemaTable | undefined {
    return this.#find(schema, name);
  }

  /** @param schema undefined: the one that needs no schema, else any */
  #find(schema: string | undefined, name: string): SchemaTable | undefined {
    const named = this.#schema?.tables.filter((table) => table.name === name) ?? [];
    if (schema !== undefined) return named.find((table) => table.schema === schema);
    return named.find((table) => table.schema === USUAL_SCHEMA) ?? named[0];
  }
}

const asIs = (name: string): string => name;
const nameOf = ({ name }: { readonly name: string }): string => name;
const shortName = ({ name, alias }: NamedTable): string => alias ?? name;

function detailOf({ type, notNull }: SchemaColumn): string {
  return notNull ? `${type} not null` : type;
}

function signatureOf({ kind, arguments: args, returns }: Routine): string {
  if (kind === 'procedure') return `procedure (${args})`;
  return `(${args})${returns === null ? '' : ` → ${returns}`}`;
}

/** What stands at the cursor, and what the statement around it says. */
interface Cursor extends Tables {
  /** The names before the dot: of a schema, a table, an alias. */
  readonly path: readonly string[];
  /** The beginning of a name, as far as it is typed. */
  readonly typed: string;
  readonly isQuoted: boolean;
  /** What a name takes the place of. */
  readonly from: number;
  readonly to: number;
}

/** Of a longer text only the part around the cursor is read. */
const BEFORE_MAX_CHARACTERS = 50_000;
const AFTER_MAX_CHARACTERS = 20_000;

/** @returns undefined in a string, a comment, a number, an alias */
export function cursorIn(text: string, at: number): Cursor | undefined {
  const start = startBefore(text, at);
  const part = start === 0 && text.length - at <= AFTER_MAX_CHARACTERS ? text : text.slice(start, at + AFTER_MAX_CHARACTERS);
  return moved(read(part, at - start), start);
}

/** After the end of a statement, where there is one. */
function startBefore(text: string, at: number): number {
  if (at <= BEFORE_MAX_CHARACTERS) return 0;
  const start = at - BEFORE_MAX_CHARACTERS;
  const end = text.indexOf(';\n', start);
  return end < 0 || end >= at ? start : end + 1;
}

function moved(cursor: Cursor | undefined, by: number): Cursor | undefined {
  return cursor && { ...cursor, from: cursor.from + by, to: cursor.to + by };
}

function read(text: string, at: number): Cursor | undefined {
  const lexer = new Lexer(text);
  let tokens: SqlToken[] = [];
  while (lexer.next() !== Token.End) {
    const token = tokenOf(lexer);
    if (token.punctuation === ';') {
      if (token.start >= at) break;
      tokens = [];
      continue;
    }
    const isInside = token.start < at && (at < token.end || (at === token.end && token.isOpen));
    if (isInside && token.kind === Token.DollarString) return inBody(text, token, at);
    if (isInside && isString(token.kind)) return undefined;
    tokens.push(token);
  }
  return cursorAt(text, tokens, at);
}

/** The body of a function is read like a text of its own. */
function inBody(text: string, { start, end, isOpen }: SqlToken, at: number): Cursor | undefined {
  const tag = text.indexOf('$', start + 1) + 1 - start;
  const [bodyStart, bodyEnd] = [start + tag, isOpen ? end : end - tag];
  return at < bodyStart || at > bodyEnd ? undefined : moved(read(text.slice(bodyStart, bodyEnd), at - bodyStart), bodyStart);
}

function cursorAt(text: string, tokens: readonly SqlToken[], at: number): Cursor | undefined {
  const after = tokens.findIndex(({ start, end }) => start >= at || end >= at);
  const index = after < 0 ? tokens.length : after;
  const token = tokens[index];
  const isTyped = token !== undefined && token.start < at;
  if (isTyped && (token.name === undefined ? token.punctuation === '' && token.kind !== Token.Operator : isClosedAt(token, at)))
    return undefined;
  const isName = isTyped && token.name !== undefined;
  // After punctuation that ends at the cursor, the name would be the next token.
  const here = isTyped && !isName ? index + 1 : index;
  if (!isName && isInComment(text, tokens[here - 1]?.end ?? 0, at)) return undefined;
  const first = pathStart(tokens, here);
  if (tokens[here - 1]?.punctuation === '.' && (first === here || tokens[here - 1]?.end !== (isName ? token.start : at))) return undefined;
  if (first === here && isAlias(tokens, here)) return undefined;
  const path = tokens.slice(first, here).flatMap(({ name }) => (name === undefined ? [] : [name]));
  const isQuoted = isName && isQuotedIdentifier(token.kind);
  const from = isName ? token.start : at;
  return {
    path,
    typed: isQuoted ? text.slice(from + 1, at).replaceAll('""', '"') : text.slice(from, at),
    isQuoted,
    from,
    to: isQuoted && !token.isOpen ? token.end : at,
    ...new TableReader(tokens, first, isName ? here : here - 1).read(),
  };
}

/** `"name"` with the cursor behind it. */
function isClosedAt({ kind, end, isOpen }: SqlToken, at: number): boolean {
  return isQuotedIdentifier(kind) && !isOpen && end === at;
}

function isInComment(text: string, from: number, at: number): boolean {
  // A letter is a word unless it is in a comment.
  return new Lexer(`${text.slice(from, at)}x`).next() === Token.End;
}

/** Before AS, where something else than a new name stands behind it: an expression, or IDENTITY. */
const NO_NAME_FOLLOWS = new Set(['ALWAYS', 'DEFAULT']);
/** Without one of these before it, in the same parentheses, AS is not in a query. */
const IN_QUERY = new Set(['SELECT', 'FROM', 'UPDATE', 'RETURNING', 'INTO']);

/** Whether an alias begins at this token: a name that is new, so that nothing known can be meant. */
function isAlias(tokens: readonly SqlToken[], at: number): boolean {
  if (tokens[at - 1]?.word !== 'AS' || NO_NAME_FOLLOWS.has(tokens[at - 2]?.word ?? '')) return false;
  let closed = 0;
  for (let index = at - 2; index >= 0; index -= 1) {
    const { punctuation, word } = tokens[index] ?? { punctuation: '', word: '' };
    if (punctuation === ')') closed += 1;
    else if (punctuation === '(' && closed > 0) closed -= 1;
    else if (punctuation === '(') return false;
    else if (closed === 0 && IN_QUERY.has(word)) return true;
  }
  return false;
}

/** A table that a statement names. */
interface NamedTable {
  readonly schema: string | undefined;
  readonly name: string;
  readonly alias: string | undefined;
}

interface Tables {
  readonly tables: readonly NamedTable[];
  /** Names of WITH queries. */
  readonly queries: readonly string[];
  /** Whether a table's name belongs where the cursor is. */
  readonly expectsTable: boolean;
}

/** The name of a table follows these words. */
const BEFORE_TABLE = new Set('FROM JOIN UPDATE INTO USING TABLE TRUNCATE REFERENCES VIEW COPY VACUUM ANALYZE'.split(' '));
/** It also follows these words, in statements that begin with one of `COMMANDS`. */
const BEFORE_TABLE_OF_COMMANDS = new Set(['ON']);
const COMMANDS = new Set('CREATE DROP ALTER GRANT REVOKE COMMENT'.split(' '));
/** These words may stand between such a word and the table. */
const BETWEEN = new Set('ONLY LATERAL IF EXISTS NOT CONCURRENTLY'.split(' '));
/** After these, commas no longer separate tables. */
const AFTER_TABLES = new Set(
  'SELECT WHERE GROUP ORDER HAVING LIMIT OFFSET FETCH SET RETURNING VALUES UNION EXCEPT INTERSECT WINDOW'.split(' '),
);
/** Functions with a FROM between their arguments. */
const WITH_FROM = new Set('EXTRACT SUBSTRING TRIM OVERLAY'.split(' '));
/** Not an alias, though not reserved. */
const NOT_ALIAS = new Set('SET VALUES DEFAULT RETURN ADD ALTER DROP RENAME OWNER MATCHED OVERRIDING PARTITION TABLESAMPLE'.split(' '));

interface Parentheses {
  /** Whether commas separate tables. */
  isList: boolean;
  /** `extract(year from …)` */
  readonly isArguments: boolean;
  readonly openedAt: number;
}

/** Reads a statement, whether or not it is complete. */
class TableReader {
  readonly #tokens: readonly SqlToken[];
  /** The tokens of the name at the cursor, which names no table yet; `last` is before `first` where there is none. */
  readonly #first: number;
  readonly #last: number;
  readonly #tables: NamedTable[] = [];
  readonly #queries = new Set<string>();
  #nesting: Parentheses[] = [{ isList: false, isArguments: false, openedAt: -1 }];
  /** Where the parentheses before this token were opened. */
  #closedFrom = -1;
  #expects = false;

  constructor(tokens: readonly SqlToken[], first: number, last: number) {
    this.#tokens = tokens;
    this.#first = first;
    this.#last = last;
  }

  read(): Tables {
    for (let at = 0; at < this.#first; ) at = this.#step(at);
    const expectsTable = this.#expects;
    this.#expects = false;
    for (let at = this.#last + 1; at < this.#tokens.length; ) at = this.#step(at);
    return { tables: this.#tables, queries: [...this.#queries], expectsTable };
  }

  /** @returns the next token to read */
  #step(at: number): number {
    const token = this.#tokens[at];
    if (token === undefined) return at + 1;
    if (token.punctuation !== '') this.#readPunctuation(token.punctuation, at);
    else if (this.#expects && token.name !== undefined && !isReserved(token)) return this.#readTable(at);
    else if (token.word !== '') this.#readWord(token.word, at);
    else this.#expects = false;
    return at + 1;
  }

  #readPunctuation(punctuation: string, at: number): void {
    const innermost = this.#nesting.at(-1);
    if (punctuation === '(') {
      const before = this.#tokens[at - 1]?.word ?? '';
      this.#nesting.push({ isList: this.#expects, isArguments: WITH_FROM.has(before), openedAt: at });
      return;
    }
    if (punctuation === ')' && this.#nesting.length > 1) this.#closedFrom = this.#nesting.pop()?.openedAt ?? -1;
    this.#expects = punctuation === ',' && innermost?.isList === true;
  }

  #readWord(word: string, at: number): void {
    const innermost = this.#nesting.at(-1);
    if (innermost === undefined) return;
    const before = this.#tokens[at - 1]?.word ?? '';
    if (word === 'AS') this.#readWithName(at);
    if (this.#expects && BETWEEN.has(word)) return;
    const isFrom = word === 'FROM';
    const names = BEFORE_TABLE.has(word) || (BEFORE_TABLE_OF_COMMANDS.has(word) && COMMANDS.has(this.#tokens[0]?.word ?? ''));
    this.#expects = names && !(isFrom && (innermost.isArguments || before === 'DISTINCT'));
    if (this.#expects && (isFrom || word === 'USING')) innermost.isList = true;
    else if (AFTER_TABLES.has(word)) innermost.isList = false;
  }

  /** `name AS (` and `name (columns) AS (` after WITH. */
  #readWithName(at: number): void {
    if (!this.#tokens.some(({ word }, index) => index < at && word === 'WITH')) return;
    let next = at + 1;
    while (['NOT', 'MATERIALIZED'].includes(this.#tokens[next]?.word ?? '')) next += 1;
    if (this.#tokens[next]?.punctuation !== '(') return;
    const before = this.#tokens[at - 1]?.punctuation === ')' ? this.#closedFrom - 1 : at - 1;
    const { name } = this.#tokens[before] ?? {};
    if (name !== undefined) this.#queries.add(name);
  }

  #readTable(at: number): number {
    const { names, next } = pathFrom(this.#tokens, at);
    this.#expects = false;
    if (this.#tokens[next]?.punctuation === '(' && this.#tokens[at - 1]?.word !== 'INTO' && this.#tokens[at - 1]?.word !== 'REFERENCES')
      return next;
    const isAs = this.#tokens[next]?.word === 'AS';
    const aliasAt = isAs ? next + 1 : next;
    const alias = aliasAt === this.#first ? undefined : this.#tokens[aliasAt];
    const hasAlias = alias?.name !== undefined && !isReserved(alias) && !NOT_ALIAS.has(alias.word);
    const name = names.at(-1) ?? '';
    this.#tables.push({ schema: names.at(-2), name, alias: hasAlias ? alias.name : undefined });
    return hasAlias ? aliasAt + 1 : next;
  }
}

function isReserved({ word }: SqlToken): boolean {
  return word !== '' && (RESERVED_WORDS.has(word.toLowerCase()) || BETWEEN.has(word));
}

/** How well a name answers what is typed; 0: it does not. Without anything typed all names are equal. */
function matchScore(name: string, typed: string): number {
  if (typed === '') return 1;
  const lower = name.toLowerCase();
  const at = lower.indexOf(typed);
  if (at === 0) return lower.length === typed.length ? 4 : 3;
  if (at < 0) return 0;
  return WORD_END.test(lower.charAt(at - 1)) ? 2 : typed.length > 1 ? 1 : 0;
}

const WORD_END = /[^a-z0-9]/;
/** More than the difference between two kinds of names. */
const MATCH_WEIGHT = 10;

interface Candidate<T> {
  readonly score: number;
  readonly name: string;
  readonly make: () => T;
}

/** Keeps what answers best. Only of that anything is made. */
export class Ranking<T> {
  readonly #typed: string;
  readonly #candidates: Candidate<T>[] = [];

  constructor(typed: string) {
    this.#typed = typed.toLowerCase();
  }

  /** @param weight of this kind of names, up to 9 */
  add<Item>(items: Iterable<Item>, weight: number, nameOf: (item: Item) => string, make: (item: Item) => T): void {
    for (const item of items) {
      const name = nameOf(item);
      const match = matchScore(name, this.#typed);
      if (match > 0) this.#candidates.push({ score: match * MATCH_WEIGHT + weight, name, make: () => make(item) });
    }
  }

  best(count: number): T[] {
    const ordered = this.#candidates.sort((a, b) => b.score - a.score || a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
    return ordered.slice(0, count).map(({ make }) => make());
  }

  get isEmpty(): boolean {
    return this.#candidates.length === 0;
  }
}

/** A token of the text, and what it says. */
interface SqlToken {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Whether it is a string or a quoted identifier without its end. */
  readonly isOpen: boolean;
  /** An unquoted identifier or a keyword, in upper case; else empty. */
  readonly word: string;
  /** A punctuation character; else empty. */
  readonly punctuation: string;
  /** What it names, if it is an identifier. */
  readonly name: string | undefined;
}

function tokenOf({ text, kind, start, end, terminated }: Lexer): SqlToken {
  const written = kind === Token.Word || kind === Token.Punctuation || isQuotedIdentifier(kind) ? text.slice(start, end) : '';
  return {
    kind,
    start,
    end,
    isOpen: !terminated,
    word: kind === Token.Word ? written.toUpperCase() : '',
    punctuation: kind === Token.Punctuation ? written : '',
    name: nameWritten(kind, written, terminated),
  };
}

function nameWritten(kind: TokenKind, written: string, isTerminated: boolean): string | undefined {
  if (kind === Token.Word) return lowerCase(written);
  if (kind === Token.QuotedIdentifier) return written.slice(1, isTerminated ? -1 : undefined).replaceAll('""', '"');
  return kind === Token.UnicodeIdentifier ? written : undefined;
}

/** Names joined by dots, without white space between them. */
function pathFrom(tokens: readonly SqlToken[], at: number): { readonly names: readonly string[]; readonly next: number } {
  const names: string[] = [];
  let next = at;
  for (;;) {
    const { name } = tokens[next] ?? {};
    if (name === undefined) return { names, next };
    names.push(name);
    next += 1;
    if (!isDotBetween(tokens, next)) return { names, next };
    next += 1;
  }
}

/** Whether this is a dot with a name on both sides. */
function isDotBetween(tokens: readonly SqlToken[], at: number): boolean {
  const [before, dot, after] = [tokens[at - 1], tokens[at], tokens[at + 1]];
  return dot?.punctuation === '.' && before?.end === dot.start && after?.start === dot.end && after.name !== undefined;
}

/** Where the names begin that are joined by dots, and end before this token with a dot. */
function pathStart(tokens: readonly SqlToken[], at: number): number {
  let start = at;
  for (;;) {
    const [name, dot, next] = [tokens[start - 2], tokens[start - 1], tokens[start]];
    const joins =
      dot?.punctuation === '.' && name?.name !== undefined && name.end === dot.start && (start === at || next?.start === dot.end);
    if (!joins) return start;
    start -= 2;
  }
}

const wordsOf = (words: string): readonly string[] => words.split(/\s+/);

/** The keywords that are used most; those that are used more often come first. */
export const USUAL_KEYWORDS =
  wordsOf(`select from where insert into values update set delete create table alter drop join left inner on group by order having limit offset
and or not null is in like ilike between exists case when then else end as distinct union all with returning default primary key
references foreign unique check constraint index view function trigger begin commit rollback explain analyze asc desc using true
false add column rename to cascade if`);

/** The other keywords of PostgreSQL 18, as `pg_get_keywords()` has them. */
export const OTHER_KEYWORDS =
  wordsOf(`abort absolute access admin after aggregate also always analyse any array asensitive assertion assignment asymmetric at atomic
attach attribute authorization backward before binary both breadth cache call called cascaded cast catalog chain characteristics
checkpoint close cluster coalesce collate collation committed compression concurrently configuration conflict connection constraints
continue conversion copy cost cross csv cube current current_catalog current_date current_role current_schema current_time
current_timestamp current_user cursor cycle database deallocate dec declare defaults deferrable deferred definer delimiter
delimiters depends detach dictionary disable discard do domain double each enable encoding encrypted enforced enum escape except
exclude excluding exclusive execute expression extension external extract family fetch filter finalize first following for force
forward freeze full functions generated global grant granted greatest grouping handler hold identity immediate immutable implicit
import include including increment indexes inherit inherits initially inline inout insensitive intersect invoker isnull isolation
json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value keep
large last lateral leading leakproof least listen load local localtime localtimestamp lock locked logged matched materialized
maxvalue merge merge_action minvalue move national natural nchar next nfc nfd nfkc nfkd no none normalize normalized nothing notify
notnull nowait nullif nulls of oids omit only operator option ordinality out outer over overlaps overlay overriding owned parallel
parser partial partition passing placing policy preceding precision prepare prepared preserve prior privileges procedural procedure
procedures publication range read reassign recursive referencing refresh reindex relative release repeatable replace replica reset
restart restrict return returns revoke right rollup routine routines row rows rule savepoint schema schemas scroll search security
sequence sequences serializable session session_user setof share show similar snapshot some sql stable start statement stdin stdout
stored strict strip subscription substring support symmetric sysid system system_user tables tablesample tablespace temp temporary
ties trailing transaction transform treat trim truncate trusted uescape unbounded uncommitted unconditional unencrypted unlisten
unlogged until vacuum validate validator variadic verbose virtual volatile whitespace window within without wrapper write
xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable yes`);

/** Keywords that are names more often: they are offered as keywords, and look like names. */
const NAMELIKE_KEYWORDS =
  wordsOf(`absent action class columns comment comments conditional content data day depth document empty error event format groups header hour
indent input instead keys label language level location mapping match method minute mode month names nested new object objects off
old options others owner parameter password period plan plans position program quote quotes ref role scalar second server sets
simple skip source standalone statistics storage string target template type types unknown user valid value version views work year
zone`);

export const TYPES =
  wordsOf(`bigint bigserial bit bool boolean box bytea char character cidr circle date daterange decimal float float4 float8 inet int int2 int4
int4multirange int4range int8 int8range integer interval json jsonb jsonpath line lseg macaddr macaddr8 money name numeric numrange
oid path pg_lsn point polygon real regclass regproc regtype serial smallint smallserial text time timestamp timestamptz timetz
tsquery tsrange tstzrange tsvector uuid varbit varchar varying xml`);
