import { Code, identifierText, isIdentifier, Lexer, type LexerOptions, skipWhitespace, Token } from '../../syntax/scanner.ts';

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
export function relationQualifiers(text: string, from: number, to: number, options: LexerOptions): ReadonlySet<number> {
  const lexer = new Lexer(text, { ...options, offset: from });
  const clauses: Clause[] = ['other'];
  const columns = new Set<number>();
  let declared = false;
  let before = '';
  for (let kind = lexer.next(); kind !== Token.End && lexer.start < to; kind = lexer.next()) {
    const current = clauses.at(-1) ?? 'other';
    const word = isIdentifier(kind) ? identifierText(lexer) : text.charAt(lexer.start);
    if (before === '' && WITHOUT_RELATIONS.has(word)) break;
    if (word === 'public' && before !== '.') {
      declared ||= declares(current, text, lexer.end);
      if (current !== 'relations' && isColumn(text, lexer.end)) columns.add(lexer.end);
    }
    if (kind === Token.Word) clauses[clauses.length - 1] = clauseAfter(word, before, current);
    else if (kind === Token.Punctuation) nest(clauses, text.charCodeAt(lexer.start), before);
    before = word;
  }
  return declared ? columns : new Set();
}

/**
 * FROM may also separate arguments (`extract(epoch FROM t)`) or belong to IS DISTINCT FROM. After FOR UPDATE, a policy names roles, and a
 * query relations that its FROM has named.
 */
function clauseAfter(word: string, before: string, current: Clause): Clause {
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

function nest(clauses: Clause[], code: number, before: string): void {
  const relations = clauses.at(-1) === 'relations' && BEFORE_RELATIONS.includes(before);
  if (code === Code.Open) clauses.push(relations ? 'relations' : 'arguments');
  if (code === Code.Close && clauses.length > 1) clauses.pop();
}
