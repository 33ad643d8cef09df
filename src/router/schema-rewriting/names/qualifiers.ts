import { Code } from '../../../syntax/characters.ts';
import { Token } from '../../../syntax/scanner.ts';
import { skipWhitespace } from '../../../syntax/token-ends.ts';
import type { ScopedEdits } from '../edits/scoped-edits.ts';
import type { SchemaTarget } from '../schema-target.ts';
import { isCast } from '../tokens/literals.ts';
import { relationQualifiers } from './aliases.ts';
import type { Scope } from './scope.ts';

/** In statements larger than this `public` is always the schema. */
const RESOLVED_MAX_CHARACTERS = 256 * 1024;

/** Words behind which `public.name` is no column, whatever else the statement says. */
const BEFORE_OBJECTS = ['from', 'join', 'into', 'update', 'table', 'only', 'view', 'exists', 'to', 'as', 'collate', 'copy', 'references'];

/** Puts the place's schema where `public` qualifies a name. */
export class Qualifiers {
  readonly #edits: ScopedEdits;
  readonly #place: SchemaTarget;

  constructor(edits: ScopedEdits, place: SchemaTarget) {
    this.#edits = edits;
    this.#place = place;
  }

  /** At `public`, an identifier that says so from `start` to `end`. */
  read(scope: Scope, start: number, end: number): void {
    const { lexer, last } = scope;
    const dotted = scope.isMark(last, Code.Dot);
    const dot = skipWhitespace(lexer.text, lexer.end);
    if (lexer.text.charCodeAt(dot) !== Code.Dot || lexer.text.charCodeAt(dot + 1) === Code.Dot) {
      if (!dotted) scope.bare = true;
      return;
    }
    if (dotted ? !this.#inDatabase(scope) : isRow(scope, dot + 1)) return;
    const edit = this.#edits.add(scope, start, end, this.#place.schema);
    const isObject = dotted || isCast(lexer.text, last) || scope.isOneOf(last, BEFORE_OBJECTS);
    if (!isObject && start - scope.statement < RESOLVED_MAX_CHARACTERS) scope.candidates.push({ edit, end: lexer.end });
  }

  /** Behind `name.`: whether that is the name of the database, which is put right. */
  #inDatabase(scope: Scope): boolean {
    const { database, schema } = this.#place;
    const { second, third } = scope;
    const name = scope.nameOf(second);
    if (database === undefined || scope.isMark(third, Code.Dot) || (name !== schema && name !== database)) return false;
    const quoted = second.kind === Token.QuotedIdentifier ? 1 : 0;
    if (name !== database) this.#edits.add(scope, second.start + quoted, second.end - quoted, database);
    return true;
  }

  /** At a statement's end: takes those edits back that turned out to be of a relation's name. */
  endStatement(scope: Scope): void {
    const { candidates, lexer, bare, statement } = scope;
    if (!bare || candidates.length === 0 || lexer.start - statement > RESOLVED_MAX_CHARACTERS) return;
    const relations = relationQualifiers(lexer.text, statement, lexer.start);
    if (relations.size > 0) this.#edits.remove(new Set(candidates.filter(({ end }) => relations.has(end)).map(({ edit }) => edit)));
  }
}

/** `public.*` is the row of a relation, but `OPERATOR(public.*)` an operator. */
function isRow(scope: Scope, offset: number): boolean {
  const { lexer, last, second } = scope;
  const ahead = scope.ahead();
  ahead.moveTo(offset);
  if (ahead.next() !== Token.Operator || lexer.text.slice(ahead.start, ahead.end) !== '*') return false;
  return !scope.isWord(last, 'operator') && !scope.isOneOf(second, ['operator', 'if']);
}
