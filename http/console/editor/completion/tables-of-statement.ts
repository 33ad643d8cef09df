import { RESERVED_WORDS } from '../../quoting/reserved-words.ts';
import { pathFrom, type SqlToken } from './tokens-and-dotted-names.ts';

/** A table that a statement names. */
export interface NamedTable {
  readonly schema: string | undefined;
  readonly name: string;
  readonly alias: string | undefined;
}

export interface Tables {
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
export class TableReader {
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
