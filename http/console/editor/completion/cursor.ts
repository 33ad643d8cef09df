import { isQuotedIdentifier, isString, Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { TableReader, type Tables } from './tables.ts';
import { type Piece, pathStart, pieceOf } from './tokens-and-dotted-names.ts';

/** What stands at the cursor, and what the statement around it says. */
export interface Cursor extends Tables {
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
  let pieces: Piece[] = [];
  while (lexer.next() !== Token.End) {
    const piece = pieceOf(lexer);
    if (piece.mark === ';') {
      if (piece.start >= at) break;
      pieces = [];
      continue;
    }
    const isInside = piece.start < at && (at < piece.end || (at === piece.end && piece.isOpen));
    if (isInside && piece.kind === Token.DollarString) return inBody(text, piece, at);
    if (isInside && isString(piece.kind)) return undefined;
    pieces.push(piece);
  }
  return cursorAt(text, pieces, at);
}

/** The body of a function is read like a text of its own. */
function inBody(text: string, { start, end, isOpen }: Piece, at: number): Cursor | undefined {
  const tag = text.indexOf('$', start + 1) + 1 - start;
  const [bodyStart, bodyEnd] = [start + tag, isOpen ? end : end - tag];
  return at < bodyStart || at > bodyEnd ? undefined : moved(read(text.slice(bodyStart, bodyEnd), at - bodyStart), bodyStart);
}

function cursorAt(text: string, pieces: readonly Piece[], at: number): Cursor | undefined {
  const after = pieces.findIndex(({ start, end }) => start >= at || end >= at);
  const index = after < 0 ? pieces.length : after;
  const piece = pieces[index];
  const isTyped = piece !== undefined && piece.start < at;
  if (isTyped && (piece.name === undefined ? piece.mark === '' && piece.kind !== Token.Operator : isClosedAt(piece, at))) return undefined;
  const isName = isTyped && piece.name !== undefined;
  // After a mark that ends at the cursor, the name would be the next piece.
  const here = isTyped && !isName ? index + 1 : index;
  if (!isName && isInComment(text, pieces[here - 1]?.end ?? 0, at)) return undefined;
  const first = pathStart(pieces, here);
  if (pieces[here - 1]?.mark === '.' && (first === here || pieces[here - 1]?.end !== (isName ? piece.start : at))) return undefined;
  if (first === here && isAlias(pieces, here)) return undefined;
  const path = pieces.slice(first, here).flatMap(({ name }) => (name === undefined ? [] : [name]));
  const isQuoted = isName && isQuotedIdentifier(piece.kind);
  const from = isName ? piece.start : at;
  return {
    path,
    typed: isQuoted ? text.slice(from + 1, at).replaceAll('""', '"') : text.slice(from, at),
    isQuoted,
    from,
    to: isQuoted && !piece.isOpen ? piece.end : at,
    ...new TableReader(pieces, first, isName ? here : here - 1).read(),
  };
}

/** `"name"` with the cursor behind it. */
function isClosedAt({ kind, end, isOpen }: Piece, at: number): boolean {
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

/** Whether an alias begins at this piece: a name that is new, so that nothing known can be meant. */
function isAlias(pieces: readonly Piece[], at: number): boolean {
  if (pieces[at - 1]?.word !== 'AS' || NO_NAME_FOLLOWS.has(pieces[at - 2]?.word ?? '')) return false;
  let closed = 0;
  for (let index = at - 2; index >= 0; index -= 1) {
    const { mark, word } = pieces[index] ?? { mark: '', word: '' };
    if (mark === ')') closed += 1;
    else if (mark === '(' && closed > 0) closed -= 1;
    else if (mark === '(') return false;
    else if (closed === 0 && IN_QUERY.has(word)) return true;
  }
  return false;
}
