import { quoteLiteral } from '../../../quoting/quote-literal.ts';

/*
 * SQL with its values. Values are parameters wherever it is run; where it is shown they stand in it as literals. Names are quoted by
 * whoever writes the text.
 */

/** The text that PostgreSQL reads for the type it gives to the place; null is NULL. */
export type ValueText = string | null;

type Piece = string | { readonly value: ValueText };

/** A statement of `POST /api/query` or `/api/transaction`. */
export interface Statement {
  readonly sql: string;
  readonly params: readonly ValueText[];
}

export class Sql {
  readonly #pieces: readonly Piece[];

  constructor(pieces: readonly Piece[]) {
    this.#pieces = pieces;
  }

  /** What it consists of, to become part of another text. */
  get pieces(): readonly Piece[] {
    return this.#pieces;
  }

  get isEmpty(): boolean {
    return this.#pieces.every((piece) => piece === '');
  }

  /** With `$1`, `$2` … */
  toStatement(): Statement {
    const params: ValueText[] = [];
    const texts = this.#pieces.map((piece) => (typeof piece === 'string' ? piece : `$${params.push(piece.value)}`));
    return { sql: texts.join(''), params };
  }

  /** With literals: to be read, copied, and run elsewhere. */
  toString(): string {
    return this.#pieces.map((piece) => (typeof piece === 'string' ? piece : quoteNullable(piece.value))).join('');
  }
}

/** SQL text; strings between its parts are SQL too: names, quoted already. */
export function sql(texts: TemplateStringsArray, ...parts: readonly (string | Sql)[]): Sql {
  return new Sql(
    texts.flatMap((text, index) => {
      const part = parts[index];
      return part === undefined ? [text] : [text, ...piecesOf(part)];
    }),
  );
}

export function value(text: ValueText): Sql {
  return new Sql([{ value: text }]);
}

export function join(parts: readonly (string | Sql)[], separator: string): Sql {
  return new Sql(parts.flatMap((part, index) => [...(index === 0 ? [] : [separator]), ...piecesOf(part)]));
}

function piecesOf(part: string | Sql): readonly Piece[] {
  return typeof part === 'string' ? [part] : part.pieces;
}

/** As `quote_nullable`. */
function quoteNullable(text: ValueText): string {
  return text === null ? 'NULL' : quoteLiteral(text);
}
