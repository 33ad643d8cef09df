import { Code } from './characters.ts';
import { identifierText } from './content.ts';
import { isIdentifier, Lexer, Token } from './lexer.ts';
import { skipBlank } from './token-ends.ts';

/** What the names of a clause are: relations (`FROM`), those that a WITH list makes, arguments of a function, anything else. */
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
 * Whether the statement between the offsets calls a relation `public`, as an alias, in a WITH list, or because a table
 * has that name: then `public.id` can be a column of it.
 */
export function namesRelation(text: string, from: number, to: number): boolean {
  const lexer = new Lexer(text, { offset: from });
  const clauses: Clause[] = ['other'];
  let before = '';
  for (let kind = lexer.next(); kind !== Token.End && lexer.start < to; kind = lexer.next()) {
    const clause = clauses.at(-1) ?? 'other';
    const word = isIdentifier(kind) ? identifierText(lexer) : text.charAt(lexer.start);
    if (before === '' && WITHOUT_RELATIONS.has(word)) return false;
    if (word === 'public' && before !== '.' && declares(clause, text, lexer.end)) return true;
    if (kind === Token.Word) clauses[Math.max(clauses.length - 1, 0)] = clauseAfter(word, before, clause);
    else if (kind === Token.Punctuation) nest(clauses, text.charCodeAt(lexer.start), before);
    before = word;
  }
  return false;
}

/** FROM is also a word between arguments, `extract(epoch FROM t)`, and part of an operator. */
function clauseAfter(word: string, before: string, clause: Clause): Clause {
  if (word === 'from' && (before === 'distinct' || clause === 'arguments')) return clause;
  return CLAUSES.get(word) ?? clause;
}

function declares(clause: Clause, text: string, end: number): boolean {
  const next = text.charCodeAt(skipBlank(text, end));
  if (clause === 'with') return next !== Code.Comma && next !== Code.Dot;
  return clause === 'relations' && next !== Code.Dot;
}

/** Words and marks between which and a parenthesis in FROM there is no name: it holds relations, not arguments or columns. */
const BEFORE_RELATIONS = ['from', 'join', 'lateral', ',', '('];

function nest(clauses: Clause[], code: number, before: string): void {
  const relations = clauses.at(-1) === 'relations' && BEFORE_RELATIONS.includes(before);
  if (code === Code.Open) clauses.push(relations ? 'relations' : 'arguments');
  if (code === Code.Close && clauses.length > 1) clauses.pop();
}

/** Whether `public.name`, whose `public` ends at the offset, can be a column: no third part follows, and no arguments. */
export function canBeColumn(text: string, end: number): boolean {
  const lexer = new Lexer(text, { offset: end });
  lexer.next();
  if (!isIdentifier(lexer.next())) return false;
  const next = text.charCodeAt(skipBlank(text, lexer.end));
  return next !== Code.Dot && next !== Code.Open;
}
