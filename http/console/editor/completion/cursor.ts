import { isQuotedIdentifier, isString, Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { TableReader, type Tables } from './tables-of-statement.ts';
import { pathStart, type SqlToken, tokenOf } from './tokens-and-dotted-names.ts';

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
