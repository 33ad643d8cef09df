import { isCast, type NestedEdits, type Scope } from '../../syntax/names.ts';
import { Code, skipWhitespace, Token } from '../../syntax/scanner.ts';
import { relationQualifiers } from './relations-named-public.ts';
import type { SchemaTarget } from './schema-target.ts';

/** In a larger statement, `public` is always the schema. */
const RESOLVED_MAX_CHARACTERS = 256 * 1024;

/** Keywords after which `public.name` is never a column. */
const BEFORE_OBJECTS = ['from', 'join', 'into', 'update', 'table', 'only', 'view', 'exists', 'to', 'as', 'collate', 'copy', 'references'];

/** Replaces `public` by the target's schema where it qualifies a name. */
export class Qualifiers {
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
