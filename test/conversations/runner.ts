import { AssertionError } from 'node:assert';
import { ACTIONS } from './actions.ts';
import { encodeFrontend } from './frontend-message.ts';
import { compareReplies, readAsExpected, readReplies } from './replies.ts';
import { applies, type Conversation, type Line, type Step } from './script.ts';
import type { Target } from './target.ts';
import { fillIn, shorten } from './template.ts';
import { WireClient } from './wire-client.ts';
import { Words } from './words.ts';

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

  constructor(conversation: Conversation, target: Target, record: Record | undefined) {
    this.#conversation = conversation;
    this.#target = target;
    this.#record = record;
  }

  async step(step: Step): Promise<void> {
    const lines = step.lines.filter((line) => applies(line.only, this.#target));
    const [first] = lines;
    if (!first) return;
    const place = `${this.#conversation.file}:${first.number} (${step.actor})`;
    try {
      await this.#take(step, first, lines, place);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      throw new Error(`${place}: ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }

  async #take({ kind, actor }: Step, first: Line, lines: readonly Line[], place: string): Promise<void> {
    const texts = lines.map(({ text }) => this.#fill(text));
    if (kind === 'act') return await this.#act(actor, texts.join(''));
    const client = this.#connected(actor);
    if (kind === 'send') return await client.write(Buffer.concat(texts.map(encodeFrontend)));
    if (first.text.startsWith('?')) return await this.#recordReplies(actor, client, first);
    compareReplies(place, texts, await readAsExpected(client, texts));
  }

  /** Every client that is still there says goodbye, and hears nothing but the end. */
  async farewell(): Promise<void> {
    const { file, line } = this.#conversation;
    for (const [actor, client] of this.#clients) {
      if (client.gone) continue;
      await client.write(encodeFrontend('Terminate'));
      compareReplies(`${file}:${line} (${actor}, after the last line)`, ['EOF'], await readReplies(client, 'EOF', 1));
    }
  }

  abandon(): void {
    for (const client of this.#clients.values()) client.disconnect();
  }

  async #act(actor: string, text: string): Promise<void> {
    const words = new Words(text);
    const verb = words.text();
    const action = ACTIONS[verb];
    if (!action) throw new Error(`no action is called ${verb}`);
    if (verb === 'open' || verb === 'login') this.#clients.set(actor, await WireClient.open(this.#target.host, this.#target.port));
    await action(this.#connected(actor), words, this.#target);
  }

  #connected(actor: string): WireClient {
    const client = this.#clients.get(actor);
    if (!client || client.gone) throw new Error(`client ${actor} is not connected`);
    return client;
  }

  /** `A< ? 2 ReadyForQuery`: what comes, up to the second ReadyForQuery, takes the place of this line in the file. */
  async #recordReplies(actor: string, client: WireClient, { number, text, only }: Line): Promise<void> {
    if (!this.#record) throw new Error('not recorded yet');
    const [, count, name] = /^\?\s*(\d*)\s*(\w*)$/.exec(text) ?? [];
    const replies = await readReplies(client, name || 'ReadyForQuery', Number(count || 1));
    const prefix = only === undefined ? `${actor}<` : `${actor}[${only}]<`;
    const lines = replies.map((reply) => `${prefix} ${shorten(this.#generalize(reply))}`);
    this.#record(this.#conversation.file, number, lines);
  }

  #fill(text: string): string {
    return fillIn(text, (name) => {
      if (name === 'user' || name === 'database') return this.#target[name];
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
