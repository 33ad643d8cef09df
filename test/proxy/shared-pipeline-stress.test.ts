import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { type Service, startService } from '../../src/service.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { requestCancel } from '../support/cancel-request.ts';
import { type Doors, doorsAt, type TestOrganization } from '../support/doors.ts';
import { SeededRandom } from '../support/random.ts';
import { testVariables } from '../support/service.ts';

/**
 * Clients that share a few backends' pipelines, beside others that are slow, fail, cancel, vanish, lock and change tables.
 * No value comes twice, and every reply is compared byte by byte with what it has to be.
 */
const REQUESTS = Number(process.env.STRESS_REQUESTS ?? 40_000);
/** How many requests have to share a pipeline. On a busy machine statements are short less often, and more requests are needed for that. */
const SHARED = REQUESTS / 20;
const READERS = 40;
const BACKENDS = 8;
const SEED = 1_729;

const told = new Map<string, number>();
let service: Service;
let doors: Doors;
let organization: TestOrganization;
beforeAll(async () => {
  const limits = { POSTERN_BACKENDS_PER_TENANT: String(BACKENDS), POSTERN_PIPELINE_SPREAD: '2', POSTERN_QUEUE_TIMEOUT_MS: '60000' };
  service = await startService(readConfig({ ...testVariables(), ...limits }), ({ name }) => told.set(name, (told.get(name) ?? 0) + 1));
  doors = doorsAt(service.httpPort, service.wirePort);
  organization = await doors.signUp();
  await doors.query(organization, 'CREATE TABLE shape (v text)');
});
afterAll(() => service.close());

/** A session as bytes: one request at a time, and all that comes up to ReadyForQuery. */
class Session {
  readonly socket: Socket;
  readonly processId: number;
  readonly secretKey: Buffer;
  #heard: Buffer[] = [];
  #hear: (reply: Buffer) => void = () => {};

  private constructor(socket: Socket, { processId, secretKey }: WireClient) {
    this.socket = socket;
    this.processId = processId;
    this.secretKey = secretKey;
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      this.#heard.push(chunk);
      const reply = this.#heard.length === 1 ? chunk : Buffer.concat(this.#heard);
      if (!endsReady(reply)) return;
      this.#heard = [];
      this.#hear(reply);
    });
  }

  static async open(): Promise<Session> {
    const socket = connect({ port: doors.wirePort, host: '127.0.0.1', noDelay: true });
    const client = WireClient.over(socket);
    const { id, apiKey } = organization;
    await logIn(client, { user: id, database: id, password: apiKey }, '3.0', new Map());
    return new Session(socket, client);
  }

  ask(request: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#hear = resolve;
      this.socket.once('close', () => reject(new Error('the connection was closed')));
      this.socket.write(request);
    }).finally(() => this.socket.removeAllListeners('close')) as Promise<Buffer>;
  }

  /** Asks for whatever it is doing to be canceled, some time. */
  cancel(): void {
    cancels.push(requestCancel(doors, this.processId, this.secretKey));
  }
}

function endsReady(bytes: Buffer): boolean {
  const end = bytes.length;
  return end >= 6 && bytes[end - 6] === 0x5a && bytes.readInt32BE(end - 5) === 5;
}

const READY = Buffer.from('5a0000000549', 'hex');
const BOUND = Buffer.concat([Buffer.from('3100000004', 'hex'), Buffer.from('3200000004', 'hex')]);
const COMPLETE = Buffer.from('430000000d53454c454354203100', 'hex');

/** RowDescription of one column of type text that is called v. */
const COLUMN = Buffer.from('540000001a0001760000000000000000000019ffffffffffff0000', 'hex');

function row(value: string): Buffer {
  const bytes = Buffer.alloc(11 + value.length);
  bytes.write('D');
  bytes.writeInt32BE(10 + value.length, 1);
  bytes.writeInt16BE(1, 5);
  bytes.writeInt32BE(value.length, 7);
  bytes.write(value, 11);
  return bytes;
}

interface Question {
  readonly says: Buffer;
  /** @returns whether this is the answer */
  isAnswer(reply: Buffer): boolean;
}

const isError = (reply: Buffer) => /\0C[0-9A-Z]{5}\0/.test(reply.toString('latin1'));

const EXECUTE = Buffer.concat(['Describe P ""', 'Execute', 'Sync'].map(encodeFrontend));
const parsed = (text: string) => encodeFrontend(`Parse "" ${text}`);
const ECHO = parsed('SELECT $1::text AS v');
const SHAPE = parsed('SELECT * FROM shape WHERE v = $1');
const QUOTIENT = parsed('SELECT 10 / length($1::text) AS v');

function unnamed(parse: Buffer, value: string): Buffer {
  return Buffer.concat([parse, encodeFrontend(`Bind "" "" [${value === '' ? '""' : value}]`), EXECUTE]);
}

const exactly = (...parts: readonly Buffer[]) => {
  const expected = Buffer.concat(parts);
  return (reply: Buffer) => reply.equals(expected);
};

const QUESTIONS: readonly ((value: string) => Question)[] = [
  (value) => ({ says: unnamed(ECHO, value), isAnswer: exactly(BOUND, COLUMN, row(value), COMPLETE, READY) }),
  (value) => ({
    says: encodeFrontend(`Query SELECT '${value}'::text AS v`),
    isAnswer: exactly(COLUMN, row(value), COMPLETE, READY),
  }),
  (value) => ({
    says: Buffer.concat([encodeFrontend(`Bind "" echo [${value}]`), EXECUTE]),
    isAnswer: exactly(BOUND.subarray(5), COLUMN, row(value), COMPLETE, READY),
  }),
  // Its table is locked and changed all the time; it is empty.
  (value) => ({ says: unnamed(SHAPE, value), isAnswer: (reply) => reply.subarray(0, 10).equals(BOUND) && !isError(reply) }),
  (value) => ({
    says: encodeFrontend(`Query SELECT * FROM shape WHERE v = '${value}'`),
    isAnswer: (reply) => reply[0] === 0x54 && !isError(reply),
  }),
  // Division by zero, when it is planned or when it is run: behind it everything up to the Sync is thrown away.
  () => ({
    says: unnamed(QUOTIENT, ''),
    isAnswer: (reply) => reply.subarray(0, 5).equals(BOUND.subarray(0, 5)) && reply.includes('C22012\0'),
  }),
];

/** That have been sent. The door is not closed before they have arrived. */
const cancels: Promise<unknown>[] = [];

let asked = 0;
let isOver = false;

async function read(id: number): Promise<void> {
  const session = await Session.open();
  const random = new SeededRandom(SEED + id);
  await session.ask(Buffer.concat([encodeFrontend('Parse echo SELECT $1::text AS v'), encodeFrontend('Sync')]));
  while (asked < REQUESTS || (told.get('request.shared') ?? 0) <= SHARED) {
    asked += 1;
    const value = `v${id}.${asked}`;
    // Mostly what is answered with a value of its own.
    const question = QUESTIONS[random.below(10) === 0 ? 3 + random.below(3) : random.below(3)]?.(value);
    if (question === undefined) throw new Error('there is no such question');
    const reply = await session.ask(question.says);
    if (!question.isAnswer(reply)) expect.fail(`${question.says.toString('latin1')}\nwas answered with\n${reply.toString('latin1')}`);
  }
  session.socket.end();
}

/** Others, as long as there are readers. */
async function meanwhile(act: (session: Session, random: SeededRandom) => Promise<Session | undefined>, id: number): Promise<void> {
  const random = new SeededRandom(SEED * 2 + id);
  let session = await Session.open();
  while (!isOver) session = (await act(session, random)) ?? session;
  session.socket.destroy();
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const says = async (session: Session, sql: string) => {
  const reply = await session.ask(encodeFrontend(`Query ${sql}`));
  if (isError(reply)) expect.fail(`${sql}: ${reply.toString('latin1')}`);
};

const NEIGHBOURS: readonly ((session: Session, random: SeededRandom) => Promise<Session | undefined>)[] = [
  async (session) => {
    await says(session, 'SELECT pg_sleep(0.05)');
    await pause(20);
    return undefined;
  },
  async (session, random) => {
    await says(session, 'ALTER TABLE shape ALTER v TYPE varchar(100)');
    await pause(random.below(40));
    await says(session, 'ALTER TABLE shape ALTER v TYPE text');
    await pause(random.below(40));
    return undefined;
  },
  async (session) => {
    await says(session, 'BEGIN; LOCK TABLE shape IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(0.06); COMMIT');
    await pause(100);
    return undefined;
  },
  // Its own answer, or its own error.
  async (session, random) => {
    const value = `c${random.below(1_000_000)}`;
    const answered = session.ask(unnamed(ECHO, value));
    if (random.below(3) === 0) await pause(0);
    session.cancel();
    const reply = await answered;
    expect(reply.includes(value) || reply.includes('C57014\0'), reply.toString('latin1')).toBe(true);
    await pause(random.below(10));
    return undefined;
  },
  async (session, random) => {
    const gone = session.ask(unnamed(random.below(4) === 0 ? SHAPE : ECHO, 'gone')).catch(() => undefined);
    if (random.below(2) === 0) await pause(0);
    session.socket.resetAndDestroy();
    await gone;
    await pause(20);
    return Session.open();
  },
];

it(`${REQUESTS} requests of ${READERS} clients on ${BACKENDS} backends, each answered with its own`, { timeout: 900_000 }, async () => {
  const neighbours = Promise.all(NEIGHBOURS.map((act, id) => meanwhile(act, id)));
  try {
    await Promise.all(Array.from({ length: READERS }, (_, id) => read(id)));
  } finally {
    isOver = true;
    await neighbours;
    await Promise.all(cancels);
  }
  expect(told.get('request.shared')).toBeGreaterThan(SHARED);
  expect(told.get('request.requeued')).toBeGreaterThan(0);
});
