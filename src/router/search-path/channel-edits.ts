import { channelPrefix, serverChannel, truncateChannel } from './channels.ts';
import { Code } from './characters.ts';
import { type Content, contentOf, identifierText } from './content.ts';
import { type Lexer, Token } from './lexer.ts';
import { type Call, PG_NOTIFY } from './roles.ts';
import type { Scope } from './scope.ts';
import type { ScopedEdits } from './scoped-edits.ts';
import { channelNamed, computedChannel } from './statements.ts';

/** Puts the organization before the names of channels; before those that say it already it is not put again. */
export class ChannelEdits {
  /** Server's name → client's, for channels whose names did not fit behind the prefix. */
  readonly longNames = new Map<string, string>();
  readonly #edits: ScopedEdits;
  readonly #channels: string;
  readonly #prefix: string;
  readonly #bytes: boolean;

  constructor(edits: ScopedEdits, channels: string, bytes: boolean) {
    this.#edits = edits;
    this.#channels = channels;
    this.#prefix = channelPrefix(channels);
    this.#bytes = bytes;
  }

  /** At LISTEN, UNLISTEN or NOTIFY. */
  statement(scope: Scope): void {
    const name = channelNamed(scope);
    if (name === undefined) return;
    if (name.kind === Token.Word) this.#word(scope, name);
    else this.#quoted(scope, contentOf(name));
  }

  /** At the channel of `pg_notify('channel', …)`. What is empty or too long is left for the server to refuse. */
  literal(scope: Scope, content: Content): void {
    const name = this.#decoded(content.text);
    if (name !== '' && truncateChannel(name) === name) this.#quoted(scope, content);
  }

  /** At pg_notify. */
  call(scope: Scope): void {
    if (scope.nextCode() === Code.Open) scope.notifying++;
  }

  /** Before the first argument of a call: `pg_notify($1, …)` becomes `pg_notify('org_x:' || ($1), …)`. */
  open(scope: Scope, call: Call): void {
    const argument = call.roles === PG_NOTIFY ? computedChannel(scope, this.#prefix) : -1;
    if (argument < 0) return;
    this.#edits.add(scope, argument, argument, `'${this.#prefix}' || (`);
    call.wrapped = true;
  }

  /** Behind an argument. */
  close(scope: Scope, call: Call): void {
    if (call.roles !== PG_NOTIFY || call.argument !== 0) return;
    scope.notifying--;
    if (!call.wrapped) return;
    call.wrapped = false;
    this.#edits.add(scope, scope.lexer.start, scope.lexer.start, ')');
  }

  #word(scope: Scope, name: Lexer): void {
    const folded = identifierText(name);
    this.#edits.add(scope, name.start, name.end, `"${this.#digested(folded) ?? this.#prefix + folded}"`);
  }

  #quoted(scope: Scope, content: Content | undefined): void {
    if (content === undefined || content.text.startsWith(this.#prefix)) return;
    const digested = this.#digested(content.text);
    if (digested === undefined) this.#edits.addWithin(scope, content, 0, 0, this.#prefix);
    else this.#edits.addWithin(scope, content, 0, content.text.length, digested);
  }

  /** The server's name for a channel whose name does not fit behind the prefix; undefined for one that does. */
  #digested(written: string): string | undefined {
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
