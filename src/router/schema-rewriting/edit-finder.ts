import type { Edits } from '../../syntax/edits.ts';
import {
  existingSchemaEnd,
  introducesSchemas,
  keywordAt,
  type LiteralMeaning,
  NestedEdits,
  namesSchema,
  preparedTransactionEnd,
  publicIn,
  SCHEMA_ARRAY,
  SCHEMAS,
  type Scope,
  SqlReader,
  schemaParameter,
} from '../../syntax/names.ts';
import { contentOf, identifierText, type LexerOptions, Token } from '../../syntax/scanner.ts';
import { ChannelEdits } from './channel-edits.ts';
import { lastMention } from './prefilter.ts';
import { Qualifiers } from './qualifiers.ts';
import type { SchemaTarget } from './schema-target.ts';
import { schemasNamed } from './search-path-values.ts';

export interface EditFinderOptions extends LexerOptions {
  /** The text is bytes, decoded as Latin-1. */
  readonly bytes: boolean;
  /** Offset after the last mention of anything that can need an edit. */
  readonly until: number;
}

/** Does what `CREATE SCHEMA IF NOT EXISTS public` does in a database that has the schema: it raises the same notice. */
const SCHEMA_EXISTS = `DO 'BEGIN RAISE NOTICE USING ERRCODE = ''duplicate_schema'', MESSAGE = ''schema "public" already exists, skipping''; END'`;

/** Like PREPARE TRANSACTION where it is disabled, this fails, and with it the transaction. */
const NO_PREPARED_TRANSACTIONS = `DO 'BEGIN RAISE USING ERRCODE = ''feature_not_supported'', MESSAGE = ''prepared transactions are not supported''; END'`;

/** Reads a text token by token and collects the edits that make it refer to the organization's schema. */
export class EditFinder extends SqlReader {
  readonly #target: SchemaTarget;
  readonly #edits: NestedEdits;
  readonly #qualifiers: Qualifiers;
  readonly #channels: ChannelEdits;

  constructor(text: string, target: SchemaTarget, options: EditFinderOptions) {
    super(text, options.until, options);
    this.#target = target;
    this.#edits = new NestedEdits(text, options.bytes);
    this.#qualifiers = new Qualifiers(this.#edits, target);
    this.#channels = new ChannelEdits(this.#edits, target, options.bytes);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#edits.edits;
  }

  /** The client's name by the server's name, for channels whose names were too long for the prefix. */
  get longChannels(): ReadonlyMap<string, string> {
    return this.#channels.longNames;
  }

  /** Only the statement itself has parameters of the client; in a literal, `$1` is a function's argument. */
  protected override parameter(scope: Scope): void {
    const { lexer, outer, calls } = scope;
    if (outer !== undefined) return;
    const isArray = calls.at(-1)?.meanings === SCHEMA_ARRAY;
    if (!isArray && calls.at(-1)?.meanings !== SCHEMAS && !namesSchema(scope)) return;
    this.#edits.add(scope, lexer.start, lexer.end, schemaParameter(scope, isArray, this.#target.schema));
  }

  protected override word(scope: Scope): void {
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
        this.searchPath(scope);
        break;
      case 'standard_conforming_strings':
        this.strings(scope);
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

  protected override quotedIdentifier(scope: Scope): void {
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
        this.searchPath(scope);
        break;
      case 'standard_conforming_strings':
        this.strings(scope);
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

  protected override schemaName(scope: Scope): void {
    const { lexer } = scope;
    if (identifierText(lexer) === 'public') this.#edits.add(scope, lexer.start, lexer.end, this.#target.schema);
  }

  #prepare(scope: Scope): void {
    const end = preparedTransactionEnd(scope);
    if (end < 0) return;
    this.#edits.add(scope, scope.lexer.start, end, NO_PREPARED_TRANSACTIONS);
    scope.lexer.moveTo(end);
  }

  protected override literal(scope: Scope, meaning: LiteralMeaning | undefined): void {
    const content = meaning === undefined ? undefined : contentOf(scope.lexer);
    if (content === undefined) return;
    const { text } = content;
    const { schema, database } = this.#target;
    switch (meaning) {
      case 'sql':
        this.enter(scope, content, lastMention(text));
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

  protected override endStatement(scope: Scope): void {
    this.#qualifiers.endStatement(scope);
  }
}
