import { createHash, createHmac, pbkdf2Sync } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import type { WireLogin } from './pgbench.ts';

const [AUTHENTICATION, ERROR_RESPONSE, READY_FOR_QUERY] = [0x52, 0x45, 0x5a];
const CLIENT_FIRST_BARE = 'n=,r=one-nonce-is-as-good-as-another';
/** base64 of `n,,`: no channel binding. */
const BINDING = 'c=biws';

/**
 * A client that costs little, so that it is the server that is measured: what follows from password and salt alone is computed
 * once, as drivers that care for it do, and the server's own proof is not looked at.
 */
export class WireClients {
  readonly #login: WireLogin;
  readonly #startup: Buffer;
  readonly #keys = new Map<string, Keys>();

  constructor(login: WireLogin) {
    this.#login = login;
    this.#startup = startupMessage(login);
  }

  /** @returns the connection after its first ReadyForQuery. @throws Error with what the server said instead */
  open(): Promise<Socket> {
    const { host, port } = this.#login;
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true });
      let pending: Buffer | undefined;
      const fail = (reason: string) => {
        socket.destroy();
        reject(new Error(`login failed: ${reason}`));
      };
      const closed = () => fail('the connection was closed');
      socket.on('connect', () => socket.write(this.#startup));
      socket.once('error', (error) => fail(error.message)).once('close', closed);
      socket.on('data', (chunk) => {
        const bytes = pending === undefined ? chunk : Buffer.concat([pending, chunk]);
        let at = 0;
        for (let end = messageEnd(bytes, at); end <= bytes.length; end = messageEnd(bytes, at)) {
          const type = bytes[at];
          if (type === AUTHENTICATION) this.#answer(socket, bytes.subarray(at + 5, end));
          else if (type === ERROR_RESPONSE) return fail(bytes.toString('utf8', at + 5, end).replaceAll('\0', ' '));
          else if (type === READY_FOR_QUERY) {
            socket.removeAllListeners('data').removeListener('close', closed);
            resolve(socket);
          }
          at = end;
        }
        pending = at === bytes.length ? undefined : bytes.subarray(at);
      });
    });
  }

  /** @see https://www.postgresql.org/docs/current/sasl-authentication.html */
  #answer(socket: Socket, body: Buffer): void {
    const step = body.readInt32BE();
    if (step === 10) socket.write(CLIENT_FIRST);
    if (step === 11) socket.write(saslResponse(this.#clientFinal(body.toString('latin1', 4))));
  }

  #clientFinal(serverFirst: string): string {
    const [, nonce = '', salt = '', iterations = ''] = /^r=([^,]*),s=([^,]*),i=(\d+)/.exec(serverFirst) ?? [];
    const keys = this.#keys.get(salt) ?? deriveKeys(this.#login.password, salt, Number(iterations));
    this.#keys.set(salt, keys);
    const unproved = `${BINDING},r=${nonce}`;
    const signature = createHmac('sha256', keys.stored).update(`${CLIENT_FIRST_BARE},${serverFirst},${unproved}`).digest();
    for (let at = 0; at < signature.length; at++) signature[at] = (signature[at] ?? 0) ^ (keys.client[at] ?? 0);
    return `${unproved},p=${signature.toString('base64')}`;
  }
}

interface Keys {
  readonly client: Buffer;
  readonly stored: Buffer;
}

/** @see https://www.rfc-editor.org/rfc/rfc5802#section-3 */
function deriveKeys(password: string, salt: string, iterations: number): Keys {
  const salted = pbkdf2Sync(password, Buffer.from(salt, 'base64'), iterations, 32, 'sha256');
  const client = createHmac('sha256', salted).update('Client Key').digest();
  return { client, stored: createHash('sha256').update(client).digest() };
}

/** Where the message that begins here ends; beyond the bytes at hand when it is not there whole. */
function messageEnd(bytes: Buffer, at: number): number {
  return at + 5 > bytes.length ? Number.POSITIVE_INFINITY : at + 1 + bytes.readInt32BE(at + 1);
}

function startupMessage({ user, database }: WireLogin): Buffer {
  const body = Buffer.from(`\0\x03\0\0user\0${user}\0database\0${database}\0\0`, 'latin1');
  return Buffer.concat([int32(4 + body.length), body]);
}

const CLIENT_FIRST = message(
  'p',
  Buffer.concat([Buffer.from('SCRAM-SHA-256\0'), int32(3 + CLIENT_FIRST_BARE.length), Buffer.from(`n,,${CLIENT_FIRST_BARE}`)]),
);

function saslResponse(text: string): Buffer {
  return message('p', Buffer.from(text, 'latin1'));
}

function message(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(type), int32(4 + body.length), body]);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}
