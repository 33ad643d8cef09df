import { RESERVED_WORDS } from '../../quoting/reserved-words.ts';
import { type Piece, pathFrom } from './tokens-and-dotted-names.ts';

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

/** Behind these stands the name of a table. */
const BEFORE_TABLE = new Set('FROM JOIN UPDATE INTO USING TABLE TRUNCATE REFERENCES VIEW COPY VACUUM ANALYZE'.split(' '));
/** Behind these too, where the statement begins with one of these. */
const BEFORE_TABLE_OF_COMMANDS = new Set(['ON']);
const COMMANDS = new Set('CREATE DROP ALTER GRANT REVOKE COMMENT'.split(' '));
/** These may stand between. */
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
  readonly #pieces: readonly Piece[];
  /** The pieces of the name at the cursor, which names no table yet; `last` is before `first` where there is none. */
  readonly #first: number;
  readonly #last: number;
  readonly #tables: NamedTable[] = [];
  readonly #queries = new Set<string>();
  #nesting: Parentheses[] = [{ isList: false, isArguments: false, openedAt: -1 }];
  /** Where the parentheses before this piece were opened. */
  #closedFrom = -1;
  #expects = false;

  constructor(pieces: readonly Piece[], first: number, last: number) {
    this.#pieces = pieces;
    this.#first = first;
    this.#last = last;
  }

  read(): Tables {
    for (let at = 0; at < this.#first; ) at = this.#step(at);
    const expectsTable = this.#expects;
    this.#expects = false;
    for (let at = this.#last + 1; at < this.#pieces.length; ) at = this.#step(at);
    return { tables: this.#tables, queries: [...this.#queries], expectsTable };
  }

  /** @returns the next piece to read */
  #step(at: number): number {
    const piece = this.#pieces[at];
    if (piece === undefined) return at + 1;
    if (piece.mark !== '') this.#mark(piece.mark, at);
    else if (this.#expects && piece.name !== undefined && !isReserved(piece)) return this.#table(at);
    else if (piece.word !== '') this.#word(piece.word, at);
    else this.#expects = false;
    return at + 1;
  }

  #mark(mark: string, at: number): void {
    const innermost = this.#nesting.at(-1);
    if (mark === '(') {
      const before = this.#pieces[at - 1]?.word ?? '';
      this.#nesting.push({ isList: this.#expects, isArguments: WITH_FROM.has(before), openedAt: at });
      return;
    }
    if (mark === ')' && this.#nesting.length > 1) this.#closedFrom = this.#nesting.pop()?.openedAt ?? -1;
    this.#expects = mark === ',' && innermost?.isList === true;
  }

  #word(word: string, at: number): void {
    const innermost = this.#nesting.at(-1);
    if (innermost === undefined) return;
    const before = this.#pieces[at - 1]?.word ?? '';
    if (word === 'AS') this.#as(at);
    if (this.#expects && BETWEEN.has(word)) return;
    const isFrom = word === 'FROM';
    const names = BEFORE_TABLE.has(word) || (BEFORE_TABLE_OF_COMMANDS.has(word) && COMMANDS.has(this.#pieces[0]?.word ?? ''));
    this.#expects = names && !(isFrom && (innermost.isArguments || before === 'DISTINCT'));
    if (this.#expects && (isFrom || word === 'USING')) innermost.isList = true;
    else if (AFTER_TABLES.has(word)) innermost.isList = false;
  }

  /** `name AS (` and `name (columns) AS (` after WITH. */
  #as(at: number): void {
    if (!this.#pieces.some(({ word }, index) => index < at && word === 'WITH')) return;
    let next = at + 1;
    while (['NOT', 'MATERIALIZED'].includes(this.#pieces[next]?.word ?? '')) next += 1;
    if (this.#pieces[next]?.mark !== '(') return;
    const before = this.#pieces[at - 1]?.mark === ')' ? this.#closedFrom - 1 : at - 1;
    const { name } = this.#pieces[before] ?? {};
    if (name !== undefined) this.#queries.add(name);
  }

  #table(at: number): number {
    const { names, next } = pathFrom(this.#pieces, at);
    this.#expects = false;
    if (this.#pieces[next]?.mark === '(' && this.#pieces[at - 1]?.word !== 'INTO' && this.#pieces[at - 1]?.word !== 'REFERENCES')
      return next;
    const isAs = this.#pieces[next]?.word === 'AS';
    const aliasAt = isAs ? next + 1 : next;
    const alias = aliasAt === this.#first ? undefined : this.#pieces[aliasAt];
    const hasAlias = alias?.name !== undefined && !isReserved(alias) && !NOT_ALIAS.has(alias.word);
    const name = names.at(-1) ?? '';
    this.#tables.push({ schema: names.at(-2), name, alias: hasAlias ? alias.name : undefined });
    return hasAlias ? aliasAt + 1 : next;
  }
}

function isReserved({ word }: Piece): boolean {
  return word !== '' && (RESERVED_WORDS.has(word.toLowerCase()) || BETWEEN.has(word));
}
