import { Code } from '../../syntax/characters.ts';
import { isIdentifier, isString, type LexerOptions, Token, type TokenKind } from '../../syntax/scanner.ts';
import { ChannelEdits } from './edits/channel-edits.ts';
import type { Edits } from './edits/edits.ts';
import { NestedEdits } from './edits/nested-edits.ts';
import { listOfSchemas, namesSchema, publicIn, schemaParameter } from './names/catalog-comparisons.ts';
import {
  argumentsOf,
  type Call,
  type LiteralMeaning,
  SCHEMA_ARRAY,
  SCHEMAS,
  SET_CONFIG,
  SET_SEARCH_PATH,
} from './names/literal-meanings.ts';
import { Scope } from './names/parse-state.ts';
import { Qualifiers } from './names/qualifiers.ts';
import type { SchemaTarget } from './schema-target.ts';
import { schemasNamed } from './search-path-values.ts';
import { existingSchemaEnd, introducesSchemas, preparedTransactionEnd, settingEnd } from './statement-patterns.ts';
import { keywordAt } from './tokens/keywords.ts';
import { meaningOfLiteral } from './tokens/literal-context.ts';
import { lastMention } from './tokens/prefilter.ts';
import { type Content, contentOf, identifierText } from './tokens/quoted-content.ts';

export interface EditFinderOptions extends LexerOptions {
  /** The text is bytes, decoded as Latin-1. */
  readonly bytes: boolean;
  /** Offset after the last mention of anything that can need an edit. */
  readonly until: number;
}

/** Function bodies and other SQL in literals are nested. More deeply nested SQL is not rewritten. */
const DEPTH_MAX = 8;

/** The server's parser refuses parentheses that are nested more deeply, so such a text is never run. */
const NESTED_MAX = 10_000;

/** Keywords that are not a function's name before a parenthesis. */
const BEFORE_GROUPING = new Set(
  'select distinct where and or not on when then else case by having default check execute return'.split(' '),
);

/** Does what `CREATE SCHEMA IF NOT EXISTS public` does in a database that has the schema: it raises the same notice. */
const SCHEMA_EXISTS = `DO 'BEGIN RAISE NOTICE USING ERRCODE = ''duplicate_schema'', MESSAGE = ''schema "public" already exists, skipping''; END'`;

/** Like PREPARE TRANSACTION where it is disabled, this fails, and with it the transaction. */
const NO_PREPARED_TRANSACTIONS = `DO 'BEGIN RAISE USING ERRCODE = ''feature_not_supported'', MESSAGE = ''prepared transactions are not supported''; END'`;

/** Reads a text token by token and collects the edits that make it refer to the organization's schema. */
export class EditFinder {
  readonly #target: SchemaTarget;
  readonly #options: EditFinderOptions;
  readonly #edits: NestedEdits;
  readonly #qualifiers: Qualifiers;
  readonly #channels: ChannelEdits;
  #scope: Scope | undefined;

  constructor(text: string, target: SchemaTarget, options: EditFinderOptions) {
    this.#target = target;
    this.#options = options;
    this.#edits = new NestedEdits(text, options.bytes);
    this.#qualifiers = new Qualifiers(this.#edits, target);
    this.#channels = new ChannelEdits(this.#edits, target, options.bytes);
    this.#scope = new Scope(text, options.until, options);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#edits.edits;
  }

  /** The client's name by the server's name, for channels whose names were too long for the prefix. */
  get longChannels(): ReadonlyMap<string, string> {
    return this.#channels.longNames;
  }

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

  #step(scope: Scope): void {
    const { lexer } = scope;
    const kind = lexer.next();
    if (scope.passesEnd()) {
      this.#qualifiers.endStatement(scope);
      this.#scope = scope.outer;
      return;
    }
    if (scope.list === undefined || !this.#listItem(scope, kind)) this.#read(scope, kind);
    scope.advance();
  }

  #read(scope: Scope, kind: TokenKind): void {
    switch (kind) {
      case Token.Word:
        this.#word(scope);
        break;
      case Token.QuotedIdentifier:
      case Token.UnicodeIdentifier:
        this.#quoted(scope);
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
        this.#parameter(scope);
        break;
    }
  }

  /** Only the statement itself has parameters of the client; in a literal, `$1` is a function's argument. */
  #parameter(scope: Scope): void {
    const { lexer, outer, calls } = scope;
    if (outer !== undefined) return;
    const isArray = calls.at(-1)?.meanings === SCHEMA_ARRAY;
    if (!isArray && calls.at(-1)?.meanings !== SCHEMAS && !namesSchema(scope)) return;
    this.#edits.add(scope, lexer.start, lexer.end, schemaParameter(scope, isArray, this.#target.schema));
  }

  #word(scope: Scope): void {
    const { text, start, end } = scope.lexer;
    const keyword = keywordAt(text, start, end);
    switch (keyword) {
      case undefined:
        return;
      case 'public':
        this.#qualifiers.read(scope, start, end);
        break;
      case 'schema':
        this.#schema(scope);
        break;
      case 'search_path':
        this.#searchPath(scope);
        break;
      case 'listen':
      case 'unlisten':
      case 'notify':
        this.#channels.statement(scope, keyword);
        break;
      case 'pg_notify':
        this.#channels.call(scope);
        break;
      case 'prepare':
        if (this.#target.hasPreparedTransactions) this.#prepare(scope);
        break;
      default:
        scope.note(keyword);
    }
  }

  #quoted(scope: Scope): void {
    const { text, kind, start, end } = scope.lexer;
    const name = kind === Token.UnicodeIdentifier ? contentOf(scope.lexer) : undefined;
    switch (name?.text ?? text.slice(start + 1, end - 1)) {
      case 'public':
        this.#qualifiers.read(scope, name?.start(0) ?? start + 1, name?.end(name.text.length) ?? end - 1);
        break;
      case 'pg_notify':
        this.#channels.call(scope);
        break;
      case 'search_path':
        this.#searchPath(scope);
        break;
    }
  }

  #schema(scope: Scope): void {
    if (!introducesSchemas(scope)) return;
    const end = existingSchemaEnd(scope);
    if (end < 0) {
      scope.expect('schema');
    } else {
      this.#edits.add(scope, scope.last.start, end, SCHEMA_EXISTS);
      scope.lexer.moveTo(end);
    }
  }

  #prepare(scope: Scope): void {
    const end = preparedTransactionEnd(scope);
    if (end < 0) return;
    this.#edits.add(scope, scope.lexer.start, end, NO_PREPARED_TRANSACTIONS);
    scope.lexer.moveTo(end);
  }

  #searchPath(scope: Scope): void {
    const end = settingEnd(scope);
    if (end < 0) return;
    scope.lexer.moveTo(end);
    scope.expect('path');
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
    if (kind !== Token.Word) this.#apply(scope, 'name', contentOf(lexer));
    else if (identifierText(lexer) === 'public') this.#edits.add(scope, lexer.start, lexer.end, this.#target.schema);
    return true;
  }

  #literal(scope: Scope): void {
    const meaning = meaningOfLiteral(scope);
    if (meaning !== undefined) this.#apply(scope, meaning, contentOf(scope.lexer));
    const call = scope.calls.at(-1);
    const setting = call?.meanings === SET_CONFIG && call.argument === 0 ? contentOf(scope.lexer)?.text : undefined;
    if (call !== undefined && setting?.toLowerCase() === 'search_path') call.meanings = SET_SEARCH_PATH;
  }

  #apply(scope: Scope, meaning: LiteralMeaning, content: Content | undefined): void {
    if (content === undefined) return;
    const { text } = content;
    const { schema, database } = this.#target;
    switch (meaning) {
      case 'sql':
        this.#enter(scope, content);
        break;
      case 'name':
        if (publicIn(text) >= 0) this.#edits.addWithin(scope, content, publicIn(text), publicIn(text) + 'public'.length, schema);
        break;
      case 'database':
        if (text === schema && database !== undefined) this.#edits.addWithin(scope, content, 0, text.length, database);
        break;
      case 'schema':
      case 'path':
        for (const [start, end] of schemasNamed(text, 'public')) this.#edits.addWithin(scope, content, start, end, schema);
        break;
    }
  }

  /** Reads the SQL in a literal next, and after it what follows the literal. */
  #enter(scope: Scope, content: Content): void {
    const until = lastMention(content.text);
    if (until < 0 || scope.depth === DEPTH_MAX) return;
    this.#scope = new Scope(content.text, until, this.#options, scope, content);
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
        this.#qualifiers.endStatement(scope);
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
