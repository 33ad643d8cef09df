import { channelNamed, type NestedEdits, type Scope } from '../../syntax/names.ts';
import { Code, type Content, contentOf, identifierText, isString, type Lexer, Token } from '../../syntax/scanner.ts';
import { channelPrefix, serverChannel, truncateChannel } from './channel-names.ts';
import type { SchemaTarget } from './schema-target.ts';

/**
 * Adds the organization's prefix to the names of channels that do not have it. The prefix is a secret, but other organizations can
 * read function bodies and rules in the catalogs. So there a statement becomes a call of one of the platform's functions, which
 * knows the prefix of the role that has logged in.
 * @see createChannelFunctions
 */
export class ChannelEdits {
  /** The client's name by the server's name, for channels whose names were too long for the prefix. */
  readonly longNames = new Map<string, string>();
  readonly #edits: NestedEdits;
  readonly #channels: string;
  readonly #prefix: string;
  readonly #pgNotify: string | undefined;
  readonly #bytes: boolean;

  constructor(edits: NestedEdits, target: SchemaTarget, bytes: boolean) {
    this.#edits = edits;
    this.#channels = target.channels ?? target.schema;
    this.#prefix = channelPrefix(this.#channels);
    this.#pgNotify = target.pgNotify;
    this.#bytes = bytes;
  }

  /** At LISTEN, UNLISTEN or NOTIFY. */
  statement(scope: Scope, verb: 'listen' | 'unlisten' | 'notify'): void {
    const name = channelNamed(scope);
    if (name === undefined) return;
    if (scope.inRule || scope.outer !== undefined) this.#stored(scope, verb, name);
    else if (name.kind === Token.Word) this.#word(scope, name);
    else this.#quoted(scope, contentOf(name));
  }

  /** At pg_notify: `pg_notify(` and `pg_catalog.pg_notify(` become `postern.pg_notify(`. */
  call(scope: Scope): void {
    const { lexer, last, second } = scope;
    if (this.#pgNotify === undefined || scope.nextCode() !== Code.Open || scope.isOneOf(last, ['function', 'routine'])) return;
    const qualified = scope.isPunctuation(last, Code.Dot);
    if (qualified && scope.nameOf(second) !== 'pg_catalog') return;
    this.#edits.add(scope, qualified ? second.start : lexer.start, lexer.end, this.#pgNotify);
  }

  /** `NOTIFY a, 'x'` becomes `CALL postern.notify('a', 'x')`. A rule cannot contain CALL, so there it becomes a SELECT that returns no rows. */
  #stored(scope: Scope, verb: 'listen' | 'unlisten' | 'notify', name: Lexer): void {
    const written = this.#literal(identifierText(name));
    if (written === undefined) return;
    const payload = verb === 'notify' ? payloadAfter(scope, name) : undefined;
    const call = scope.inRule ? `SELECT FROM ${this.#pgNotify ?? 'pg_notify'}(${written}` : `CALL postern.${verb}(${written}`;
    const end = scope.inRule ? ') OFFSET 1' : ')';
    const empty = scope.inRule ? ", ''" : '';
    this.#edits.add(scope, scope.lexer.start, name.end, payload === undefined ? call + empty + end : call);
    if (payload !== undefined) this.#edits.add(scope, payload.end, payload.end, end);
  }

  /** A channel's name as a string constant; undefined if it would need escapes. Such a channel gets no prefix, so nobody can listen to it. */
  #literal(name: string): string | undefined {
    if (name.includes('\\')) return undefined;
    const cut = truncateChannel(this.#decoded(name));
    const text = this.#bytes ? Buffer.from(cut).toString('latin1') : cut;
    return `'${text.replaceAll("'", "''")}'`;
  }

  #word(scope: Scope, name: Lexer): void {
    const folded = identifierText(name);
    this.#edits.add(scope, name.start, name.end, `"${this.#digestName(folded) ?? this.#prefix + folded}"`);
  }

  #quoted(scope: Scope, content: Content | undefined): void {
    if (content === undefined || content.text.startsWith(this.#prefix)) return;
    const digested = this.#digestName(content.text);
    if (digested === undefined) this.#edits.addWithin(scope, content, 0, 0, this.#prefix);
    else this.#edits.addWithin(scope, content, 0, content.text.length, digested);
  }

  /** The server's name for a channel whose name is too long for the prefix; undefined for other channels. */
  #digestName(written: string): string | undefined {
    const name = truncateChannel(this.#decoded(written));
    const server = serverChannel(name, this.#channels);
    if (server === this.#prefix + name) return undefined;
    this.longNames.set(server, name);
    return server;
  }

  #decoded(text: string): string {
    return this.#bytes ? Buffer.from(text, 'latin1').toString() : text;
  }
}

/** A lexer at the string after `NOTIFY channel,`; undefined if there is none. */
function payloadAfter(scope: Scope, name: Lexer): Lexer | undefined {
  const ahead = scope.ahead();
  ahead.moveTo(name.end);
  ahead.next();
  return scope.isPunctuation(ahead, Code.Comma) && isString(ahead.next()) ? ahead : undefined;
}
