import { once } from 'node:events';
import { createWebSocketStream, WebSocket } from 'ws';
import type { BackendMessage } from '../conversations/backend-message.ts';
import { authenticate } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { queryMessage } from '../support/raw-session.ts';
import type { TestService } from '../support/service.ts';
import type { Reply } from './doors.ts';

/** What somebody says of himself at the door. */
export interface Pretence {
  /** The startup packet's, in their order. */
  readonly parameters: readonly (readonly [name: string, value: string])[];
  readonly key: string;
  /** The user name inside of SCRAM. */
  readonly scramUser?: string;
}

/** What became of a login. */
export interface Entered {
  /** ReadyForQuery came. */
  readonly inside: boolean;
  /** Of the login, or of the statement that followed it. */
  readonly reply: Reply;
}

/** Logs in, and runs one statement if that works. */
export type Entrance = (service: TestService, pretence: Pretence, sql: string) => Promise<Entered>;

/** SCRAM on the TCP port. */
const tcp: Entrance = async ({ wirePort }, { parameters, key, scramUser }, sql) => {
  const client = await WireClient.open('127.0.0.1', wirePort);
  try {
    await client.write(startupPacket(parameters));
    const refusal = await authenticate(client, key, scramUser === undefined ? {} : { user: scramUser });
    return await converse(client, refusal, sql);
  } finally {
    client.disconnect();
  }
};

/** The key in the clear, on a WebSocket of the HTTP port. */
const webSocket: Entrance = async ({ httpUrl }, { parameters, key }, sql) => {
  const socket = new WebSocket(`${httpUrl.replace('http:', 'ws:')}/v2`);
  await once(socket, 'open');
  const client = WireClient.over(createWebSocketStream(socket));
  try {
    await client.write(Buffer.concat([startupPacket(parameters), passwordMessage(key)]));
    return await converse(client, undefined, sql);
  } finally {
    client.disconnect();
  }
};

export const ENTRANCES: Readonly<Record<'wire' | 'webSocket', Entrance>> = { wire: tcp, webSocket };

async function converse(client: WireClient, refusal: BackendMessage | undefined, sql: string): Promise<Entered> {
  const login = refusal === undefined ? await readReply(client) : replyOf([refusal]);
  if (login.sqlstate !== '00000') return { inside: false, reply: login };
  await client.write(queryMessage(sql));
  return { inside: true, reply: await readReply(client) };
}

/** Everything up to ReadyForQuery, or the end. */
export async function readReply(client: WireClient): Promise<Reply> {
  const messages: BackendMessage[] = [];
  for (;;) {
    const message = await client.read();
    if (message === undefined) throw new Error(`no answer, but ${messages.map(({ type }) => type).join('')}`);
    if (message === 'EOF' || message.type === 'Z') return replyOf(messages);
    messages.push(message);
  }
}

function replyOf(messages: readonly BackendMessage[]): Reply {
  const error = messages.find(({ type }) => type === 'E')?.body.toString('latin1');
  return {
    sqlstate: error === undefined ? '00000' : (/\0C(\w{5})\0/.exec(error)?.[1] ?? 'none'),
    message: error === undefined ? '' : (/\0M([^\0]*)\0/.exec(error)?.[1] ?? ''),
    rows: messages.filter(({ type }) => type === 'D').map(({ body }) => columns(body)),
    whole: messages.map(({ body }) => body.toString('latin1')).join(''),
  };
}

/** Of a DataRow, in text. */
function columns(body: Buffer): (string | null)[] {
  const values: (string | null)[] = [];
  for (let at = 2; at < body.length; ) {
    const length = body.readInt32BE(at);
    at += 4;
    values.push(length < 0 ? null : body.toString('utf8', at, at + length));
    at += Math.max(0, length);
  }
  return values;
}

/** A name may come twice. */
export function startupPacket(parameters: Pretence['parameters']): Buffer {
  const pairs = parameters.map(([name, value]) => `${name}\0${value}\0`).join('');
  return counted(Buffer.from(`\0\x03\0\0${pairs}\0`));
}

export function passwordMessage(password: string): Buffer {
  return Buffer.concat([Buffer.from('p'), counted(Buffer.from(`${password}\0`))]);
}

function counted(body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([length, body]);
}
