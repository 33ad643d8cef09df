import { AssertionError } from 'node:assert';
import { type BackendMessage, describeBackend } from './backend-message.ts';
import { encodeFrontend } from './frontend-message.ts';
import { authenticate, logIn } from './login.ts';
import { applies, type Conversation, type Line, type Step } from './script.ts';
import type { Target } from './target.ts';
import { fillIn, matches, shorten } from './template.ts';
import { WireClient } from './wire-client.ts';
import { settings, Words } from './words.ts';

const READ_TIMEOUT_MS = 5_000;
const POLL_INTERVAL_MS = 10;
const ANY_PARAMETERS = 'ParameterStatus *';

/** Told what came in place of a line `A< ?`. */
export type Record = (file: string, line: number, messages: readonly string[]) => void;

/**
 * Holds one conversation with the target.
 * @throws AssertionError with both sides where the target answers otherwise than the script says
 */
export async function hold(conversation: Conversation, target: Target, record?: Record): Promise<void> {
  const run = new Run(conversation, target, record);
  try {
    for (const step of conversation.steps) await run.step(step);
    await run.farewell();
  } finally {
    run.abandon();
  }
}

class Run {
  readonly #conversation: Conversation;
  readonly #target: Target;
  readonly #record: Record | undefined;
  readonly #clients = new Map<string, WireClient>();
  /** A message that was read and is still to be compared. */
  readonly #unread = new Map<WireClient, BackendMessage>();

  constructor(conversation: Conversation, target: Target, record: Record | undefined) {
    this.#conversation = conversation;
    this.#target = target;
    this.#record = record;
  }

  async step({ kind, actor, lines }: Step): Promise<void> {
    const counting = lines.filter((line) => applies(line.only, this.#target));
    const [first] = counting;
    if (!first) return;
    try {
      if (kind === 'act') await this.#act(actor, this.#fill(first.text));
      else if (kind === 'send')
        await this.#client(actor).write(Buffer.concat(counting.map(({ text }) => encodeFrontend(this.#fill(text)))));
      else if (first.text.startsWith('?')) await this.#recordReplies(actor, first);
      else await this.#expect(actor, counting);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      throw new Error(`${this.#place(first)} (${actor}): ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }

  /** Every client that is still there says goodbye, and hears nothing but the end. */
  async farewell(): Promise<void> {
    for (const [actor, client] of this.#clients) {
      if (client.gone) continue;
      await client.write(encodeFrontend('Terminate'));
      const rest = await this.#readUntil(client, 'EOF', 1);
      this.#compare(`${this.#conversation.file}:${this.#conversation.line} (${actor}, after the last line)`, ['EOF'], rest);
    }
  }

  abandon(): void {
    for (const client of this.#clients.values()) client.disconnect();
  }

  async #act(actor: string, text: string): Promise<void> {
    const words = new Words(text);
    const verb = words.text();
    if (verb === 'open' || verb === 'login') this.#clients.set(actor, await WireClient.open(this.#target.host, this.#target.port));
    const client = this.#client(actor);
    switch (verb) {
      case 'open':
        return;
      case 'login': {
        const version = /^login 3\.\d+/.test(text) ? words.text() : '3.0';
        return await logIn(client, this.#target, version, settings(words.all()));
      }
      case 'authenticate': {
        const refusal = await authenticate(client, this.#target.password, Object.fromEntries(settings(words.all())));
        if (refusal) this.#unread.set(client, refusal);
        return;
      }
      case 'runs':
        await this.#query(client, words.rest());
        return;
      case 'awaits':
        return await this.#poll(async () => (await this.#query(client, words.rest())).includes('DataRow t'));
      case 'cancels':
        if (text === 'cancels until answered') return await this.#cancelUntilAnswered(client);
        await Promise.all(Array.from({ length: Number(words.text('1')) }, () => this.#cancel(client)));
        return;
      case 'splits':
        client.chunkBytes = Number(words.text());
        return;
      case 'pauses':
        return client.pause();
      case 'resumes':
        return client.resume();
      case 'half-closes':
        return client.halfClose();
      case 'disconnects':
        return client.disconnect();
      case 'resets':
        return client.reset();
      default:
        throw new Error(`no action is called ${verb}`);
    }
  }

  #client(actor: string): WireClient {
    const client = this.#clients.get(actor);
    if (!client || client.gone) throw new Error(`client ${actor} is not connected`);
    return client;
  }

  /** Runs a statement beside the conversation proper, which must succeed. */
  async #query(client: WireClient, sql: string): Promise<string[]> {
    await client.write(encodeFrontend(`Query ${sql}`));
    const replies = await this.#readUntil(client, 'ReadyForQuery', 1);
    const failure = replies.find((reply) => reply.startsWith('ErrorResponse'));
    if (failure || !replies.at(-1)?.startsWith('ReadyForQuery')) throw new Error(`${sql}: ${failure ?? replies.at(-1)}`);
    return replies;
  }

  async #poll(done: () => Promise<boolean> | boolean): Promise<void> {
    const deadline = Date.now() + READ_TIMEOUT_MS;
    while (!(await done())) {
      if (Date.now() > deadline) throw new Error('waited in vain');
      await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
    }
  }

  /** Asks for the cancel of what a client runs; the server's closing says that the request was taken. */
  async #cancel({ processId, secretKey }: WireClient): Promise<void> {
    const socket = await WireClient.open(this.#target.host, this.#target.port);
    await socket.write(encodeFrontend(`CancelRequest ${processId} ${secretKey.toString('hex')}`));
    const answer = await socket.read(READ_TIMEOUT_MS);
    socket.disconnect();
    if (answer !== 'EOF') throw new Error('a cancel request was answered with bytes, or not closed');
  }

  /** For a request that may not have begun when the first cancel comes. */
  async #cancelUntilAnswered(client: WireClient): Promise<void> {
    await this.#poll(async () => {
      if (!client.answered) await this.#cancel(client);
      return client.answered;
    });
  }

  async #expect(actor: string, lines: readonly Line[]): Promise<void> {
    const expected = lines.map(({ text }) => this.#fill(text));
    const last = nameOf(expected.at(-1) ?? '');
    const client = this.#client(actor);
    const count = expected.filter((line) => nameOf(line) === last).length;
    const bytes = expected[0]?.startsWith('Byte ') ? [`Byte ${await client.readByte(READ_TIMEOUT_MS)}`] : [];
    const actual = [...bytes, ...(await this.#readUntil(client, last, last === 'Byte' ? 0 : count))];
    const [first] = lines;
    if (first) this.#compare(`${this.#place(first)} (${actor})`, expected, actual);
  }

  /** Reads up to the `count`th message of that name, or until nothing more comes. */
  async #readUntil(client: WireClient, name: string, count: number): Promise<string[]> {
    const replies: string[] = [];
    for (let seen = 0; seen < count; ) {
      const message = this.#unread.get(client) ?? (await client.read(READ_TIMEOUT_MS));
      this.#unread.delete(client);
      const reply = describe(message);
      replies.push(reply);
      if (message === 'EOF' || message === undefined) break;
      if (nameOf(reply) === name) seen++;
    }
    return replies;
  }

  #compare(place: string, expected: readonly string[], received: readonly string[]): void {
    const actual = expected.includes(ANY_PARAMETERS) ? gatherParameters(received) : received;
    if (expected.length === actual.length && expected.every((line, index) => matches(line, actual[index] ?? ''))) return;
    const text = (lines: readonly string[]) => lines.map(shorten).join('\n');
    const wanted = expected.map((line, index) => (matches(line, actual[index] ?? '') ? (actual[index] ?? '') : line));
    throw new AssertionError({ message: `${place}: not the expected replies`, expected: text(wanted), actual: text(actual) });
  }

  /** `A< ? 2 ReadyForQuery`: what comes, up to the second ReadyForQuery, takes the place of this line in the file. */
  async #recordReplies(actor: string, line: Line): Promise<void> {
    if (!this.#record) throw new Error('not recorded yet');
    const [, count, name] = /^\?\s*(\d*)\s*(\w*)$/.exec(line.text) ?? [];
    const client = this.#client(actor);
    const replies = await this.#readUntil(client, name || 'ReadyForQuery', Number(count || 1));
    const only = line.only === undefined ? '' : `[${line.only}]`;
    this.#record(
      this.#conversation.file,
      line.number,
      replies.map((reply) => `${actor}${only}< ${shorten(this.#generalize(reply))}`),
    );
  }

  #place(line: Line): string {
    return `${this.#conversation.file}:${line.number}`;
  }

  #fill(text: string): string {
    return fillIn(text, (name) => {
      if (name === 'user' || name === 'database' || name === 'password') return this.#target[name];
      const [actor = '', key = ''] = name.split('.');
      const client = this.#clients.get(actor);
      if (key === 'pid') return client && String(client.processId);
      if (key === 'key') return client?.secretKey.toString('hex');
      return client?.parameters.get(key);
    });
  }

  /** Puts variables back in place of their values. */
  #generalize(reply: string): string {
    const pids = [...this.#clients].map(([actor, client]) => [String(client.processId), `{{${actor}.pid}}`] as const);
    const known = [...pids.filter(([pid]) => pid !== '0'), [this.#target.user, '{{user}}'] as const];
    return known.reduce((text, [value, name]) => text.replaceAll(value, name), reply);
  }
}

/** A run of ParameterStatus, whose order and number are the server's affair, as one line. */
function gatherParameters(replies: readonly string[]): string[] {
  const isParameter = (reply: string | undefined) => reply?.startsWith('ParameterStatus ') ?? false;
  return replies.flatMap((reply, index) => {
    if (!isParameter(reply)) return [reply];
    return isParameter(replies[index - 1]) ? [] : [ANY_PARAMETERS];
  });
}

function describe(message: BackendMessage | 'EOF' | undefined): string {
  if (message === undefined) return '(silence)';
  return message === 'EOF' ? 'EOF' : describeBackend(message);
}

function nameOf(line: string): string {
  return line.split(' ', 1)[0] ?? '';
}
