import { Code } from '../tokens/characters.ts';
import { type Content, contentOf } from '../tokens/quoted-content.ts';
import { isIdentifier, isString, type LexerOptions, Token, type TokenKind } from '../tokens/scanner.ts';
import { listOfSchemas } from './catalog-comparisons.ts';
import { argumentsOf, type Call, type LiteralMeaning, SET_CONFIG, SET_SEARCH_PATH } from './functions-taking-names.ts';
import { meaningOfLiteral } from './literal-context.ts';
import { Scope, stringsValueAt } from './scope.ts';
import { settingEnd } from './statement-patterns.ts';

/** Function bodies and other SQL in literals are nested. More deeply nested SQL is not read. */
const DEPTH_MAX = 8;

/** The server's parser refuses parentheses that are nested more deeply, so such a text is never run. */
const NESTED_MAX = 10_000;

/** Keywords that are not a function's name before a parenthesis. */
const BEFORE_GROUPING = new Set(
  'select distinct where and or not on when then else case by having default check execute return'.split(' '),
);

/** Reads a text token by token, with the SQL in its literals, and tells its subclass what the names and literals mean. */
export abstract class SqlReader {
  #scope: Scope | undefined;

  /** @param until nothing from this offset on has to be read */
  protected constructor(text: string, until: number, options: LexerOptions) {
    this.#scope = new Scope(text, until, options);
  }

  protected abstract word(scope: Scope): void;
  protected abstract quotedIdentifier(scope: Scope): void;
  /** An identifier in a list of schemas. */
  protected abstract schemaName(scope: Scope): void;
  /** A literal, or a quoted identifier in a list of schemas. @param meaning undefined: it is data, as far as the context says */
  protected abstract literal(scope: Scope, meaning: LiteralMeaning | undefined): void;
  protected abstract parameter(scope: Scope): void;
  protected abstract endStatement(scope: Scope): void;

  /** Reads about `budget` more characters. @returns whether the whole text has been read */
  run(budget = Number.POSITIVE_INFINITY): boolean {
    for (let left = budget; left > 0 && this.#scope !== undefined; ) {
      const scope = this.#scope;
      const from = scope.lexer.end;
      this.#step(scope);
      left -= scope.lexer.end - from + 1;
    }
    return this.#scope === undefined;
  }

  /** Reads the SQL in a literal next, and after it what follows the literal. @param until negative: it need not be read */
  protected enter(scope: Scope, content: Content, until: number): void {
    if (until < 0 || scope.depth === DEPTH_MAX) return;
    this.#scope = new Scope(content.text, until, scope.optionsOf(content), scope, content);
  }

  /** At `search_path`. */
  protected searchPath(scope: Scope): void {
    const end = settingEnd(scope);
    if (end < 0) return;
    scope.lexer.moveTo(end);
    scope.expect('path');
  }

  /** At `standard_conforming_strings`. */
  protected strings(scope: Scope): void {
    const value = settingEnd(scope) < 0 ? undefined : stringsValueAt(scope.ahead());
    if (value !== undefined) scope.setsStrings(value);
  }

  #step(scope: Scope): void {
    const { lexer } = scope;
    const kind = lexer.next();
    if (scope.passesEnd()) {
      this.endStatement(scope);
      this.#scope = scope.outer;
      return;
    }
    if (scope.list === undefined || !this.#listItem(scope, kind)) this.#read(scope, kind);
    scope.advance();
  }

  #read(scope: Scope, kind: TokenKind): void {
    switch (kind) {
      case Token.Word:
        this.word(scope);
        break;
      case Token.QuotedIdentifier:
      case Token.UnicodeIdentifier:
        this.quotedIdentifier(scope);
        break;
      case Token.String:
      case Token.EscapeString:
      case Token.UnicodeString:
      case Token.DollarString:
        this.#literal(scope);
        break;
      case Token.Punctuation:
        this.#punctuation(scope);
        break;
      case Token.Parameter:
        this.parameter(scope);
        break;
    }
  }

  /** Reads a token at which a list of schemas may continue. @returns false if the list ended before it */
  #listItem(scope: Scope, kind: TokenKind): boolean {
    const { lexer } = scope;
    if (scope.isPunctuation(lexer, Code.Comma)) {
      scope.hasItem = false;
      return true;
    }
    if (scope.hasItem || !(isIdentifier(kind) || isString(kind))) {
      scope.list = undefined;
      return false;
    }
    if (scope.list === 'schema' && scope.isOneOf(lexer, ['if', 'not', 'exists', 'concurrently'])) return true;
    scope.hasItem = true;
    if (kind === Token.Word) this.schemaName(scope);
    else this.literal(scope, 'name');
    return true;
  }

  #literal(scope: Scope): void {
    this.literal(scope, meaningOfLiteral(scope));
    const call = scope.calls.at(-1);
    const setting = call?.meanings === SET_CONFIG && call.argument === 0 ? contentOf(scope.lexer)?.text : undefined;
    if (call !== undefined && setting?.toLowerCase() === 'search_path') call.meanings = SET_SEARCH_PATH;
  }

  #punctuation(scope: Scope): void {
    if (scope.calls.length > NESTED_MAX) {
      scope.giveUp();
      return;
    }
    switch (scope.lexer.text.charCodeAt(scope.lexer.start)) {
      case Code.Open:
        this.#open(scope);
        break;
      case Code.OpenBracket:
        scope.calls.push({ meanings: undefined, grouping: false, argument: 0 });
        return;
      case Code.Close:
      case Code.CloseBracket:
        scope.calls.pop();
        break;
      case Code.Comma:
        this.#comma(scope);
        break;
      case Code.Semicolon:
        this.endStatement(scope);
        scope.beginStatement();
    }
  }

  #open(scope: Scope): void {
    const { last } = scope;
    const name = scope.nameOf(last);
    const call: Call = {
      meanings: name === '' ? undefined : (listOfSchemas(scope) ?? argumentsOf(name)),
      grouping: name === '' || (last.kind === Token.Word && BEFORE_GROUPING.has(name)),
      argument: 0,
    };
    scope.calls.push(call);
  }

  #comma(scope: Scope): void {
    const call = scope.calls.at(-1);
    if (call !== undefined) call.argument++;
  }
}
