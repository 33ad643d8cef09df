import { encodeFrontend } from './frontend-message.ts';
import { authenticate, logIn } from './login.ts';
import { readReplies } from './replies.ts';
import type { Target } from './target.ts';
import { PATIENCE_MS, WireClient } from './wire-client.ts';
import { settings, type Words } from './words.ts';

const POLL_INTERVAL_MS = 10;

type Action = (client: WireClient, words: Words, target: Target) => Promise<void> | void;

/** What the verb of a line `A verb …` does. */
export const ACTIONS: Readonly<Record<string, Action>> = {
  /** Connects, and no more. */
  open() {},

  /** `login 3.2 key=value …`: connects and logs in, through the first ReadyForQuery. */
  async login(client, words, target) {
    const version = /^3\.\d+/.test(words.rest()) ? words.text() : '3.0';
    await logIn(client, target, version, settings(words.all()));
  },

  /** `authenticate password=x`: the SASL exchange, through AuthenticationOk; a refusal is left to be expected. */
  async authenticate(client, words, target) {
    const refusal = await authenticate(client, target.password, Object.fromEntries(settings(words.all())));
    if (refusal) client.giveBack(refusal);
  },

  /** `runs SQL`: a statement beside the matter, which must succeed. */
  async runs(client, words) {
    await query(client, words.rest());
  },

  /** `awaits SQL`: asks until the answer is true. */
  async awaits(client, words) {
    await poll(async () => (await query(client, words.rest())).includes('DataRow t'));
  },

  /** `cancels`, `cancels 100`: CancelRequests for this client, on connections of their own, at once. */
  async cancels(client, words, target) {
    if (words.rest() === 'until answered') return await cancelUntilAnswered(client, target);
    await Promise.all(Array.from({ length: Number(words.text('1')) }, () => cancel(client, target)));
  },

  /** `splits 1`: from now on, so many bytes a write. */
  splits(client, words) {
    client.chunkBytes = Number(words.text());
  },

  pauses: (client) => client.pause(),
  resumes: (client) => client.resume(),
  'half-closes': (client) => client.halfClose(),
  disconnects: (client) => client.disconnect(),
  resets: (client) => client.reset(),
};

async function query(client: WireClient, sql: string): Promise<string[]> {
  await client.write(encodeFrontend(`Query ${sql}`));
  const replies = await readReplies(client, 'ReadyForQuery', 1);
  const failure = replies.find((reply) => reply.startsWith('ErrorResponse'));
  if (failure || !replies.at(-1)?.startsWith('ReadyForQuery')) throw new Error(`${sql}: ${failure ?? replies.at(-1)}`);
  return replies;
}

/** The server's closing says that the request was taken. */
async function cancel({ processId, secretKey }: WireClient, { host, port }: Target): Promise<void> {
  const socket = await WireClient.open(host, port);
  await socket.write(encodeFrontend(`CancelRequest ${processId} ${secretKey.toString('hex')}`));
  const answer = await socket.read();
  socket.disconnect();
  if (answer !== 'EOF') throw new Error('a cancel request was answered with bytes, or not closed');
}

/** For a request that may not have begun when the first cancel comes. */
async function cancelUntilAnswered(client: WireClient, target: Target): Promise<void> {
  await poll(async () => {
    if (!client.answered) await cancel(client, target);
    return client.answered;
  });
}

async function poll(done: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await done())) {
    if (Date.now() > deadline) throw new Error('waited in vain');
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
}
