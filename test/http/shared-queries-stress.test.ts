import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../src/backend/session-state.ts';
import { readConfig } from '../../src/config.ts';
import { type Service, startService } from '../../src/service.ts';
import { type Doors, doorsAt, type TestOrganization } from '../support/doors.ts';
import { SeededRandom } from '../support/random.ts';
import { testVariables } from '../support/service.ts';

/**
 * Clients over HTTP whose quick reads share a few backends, beside others that are slow, fail, vanish, lock and change tables.
 * No value comes twice, and every reply is compared with what it has to be.
 */
const REQUESTS = Number(process.env.STRESS_REQUESTS ?? 15_000);
const READERS = 40;
const BACKENDS = 8;
const SEED = 1_729;
const LARGE_ROWS = 300;

const told = new Map<string, number>();
let service: Service;
let doors: Doors;
let organization: TestOrganization;
beforeAll(async () => {
  if (process.env.STRESS_REQUESTS === undefined) shareWhateverIsKnown();
  const limits = { POSTERN_BACKENDS_PER_TENANT: String(BACKENDS), POSTERN_PIPELINE_SPREAD: '2', POSTERN_QUEUE_TIMEOUT_MS: '60000' };
  service = await startService(readConfig({ ...testVariables(), ...limits }), ({ name }) => told.set(name, (told.get(name) ?? 0) + 1));
  doors = doorsAt(service.httpPort, service.wirePort);
  organization = await doors.signUp();
  for (const sql of [
    'CREATE TABLE shape (v text)',
    'CREATE TABLE wide (v text, w text)',
    'CREATE TABLE large (n int, v text)',
    `INSERT INTO large SELECT 1, 'x' UNION ALL SELECT 2, 'row ' || i || repeat('y', 1000) FROM generate_series(1, ${LARGE_ROWS}) AS i`,
  ])
    expect((await doors.query(organization, sql)).status).toBe(200);
});
afterAll(async () => {
  await service.close();
  vi.restoreAllMocks();
});

/** On a machine that is busy with other tests no read is quick, and who holds up others has more time than a lock lasts here. */
function shareWhateverIsKnown(): void {
  vi.spyOn(StatementLatency.prototype, 'isQuick', 'get').mockReturnValue(true);
  vi.spyOn(StatementLatency.prototype, 'mayFollow').mockReturnValue(true);
  vi.spyOn(LatencyBaseline.prototype, 'stallTimeoutMs', 'get').mockReturnValue(5);
}

interface Reply {
  readonly status: number;
  readonly body: string;
}

const LENGTH = /^content-length: (\d+)$/im;

/** @returns undefined for a reply that is not there as a whole */
function readReply(bytes: Buffer): Reply | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const status = Number(head.slice(9, 12));
  const length = LENGTH.exec(head)?.[1];
  const start = headEnd + 4;
  if (length !== undefined) {
    const end = start + Number(length);
    if (bytes.length > end) throw new Error(`more than one reply: ${bytes.toString('latin1')}`);
    return bytes.length < end ? undefined : { status, body: bytes.toString('utf8', start) };
  }
  if (bytes.toString('latin1', bytes.length - 7) !== '\r\n0\r\n\r\n') return undefined;
  return { status, body: joinChunks(bytes, start) };
}

function joinChunks(bytes: Buffer, start: number): string {
  const chunks: Buffer[] = [];
  for (let at = start; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at);
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    if (size === 0) return Buffer.concat(chunks).toString();
    chunks.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}

/** A connection that is kept alive: one request at a time, and the whole of its reply. */
class Client {
  readonly socket: Socket;
  #heard: Buffer[] = [];
  #hear: ((reply: Reply) => void) | undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      this.#heard.push(chunk);
      const reply = readReply(this.#heard.length === 1 ? chunk : Buffer.concat(this.#heard));
      if (reply === undefined) return;
      this.#heard = [];
      this.#hear?.(reply);
    });
  }

  static open(): Promise<Client> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port: service.httpPort, host: '127.0.0.1', noDelay: true });
      socket.once('error', reject);
      socket.once('connect', () => resolve(new Client(socket)));
    });
  }

  say(body: object): void {
    const text = JSON.stringify(body);
    const head = `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${organization.apiKey}\r\nContent-Type: application/json`;
    this.socket.write(`${head}\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  }

  ask(body: object): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const closed = () => reject(new Error('the connection was closed'));
      this.socket.once('close', closed);
      this.#hear = (reply) => {
        this.socket.off('close', closed);
        resolve(reply);
      };
      this.say(body);
    });
  }
}

interface Question {
  readonly says: object;
  isAnswer(reply: Reply): boolean;
}

const column = (name: string, type = 25, typeName = 'text') => ({ name, dataTypeID: type, dataType: typeName });

/** All of a reply but the time it took, as it is written. */
function result(rows: readonly object[], fields: readonly object[]): string {
  return JSON.stringify({ fields, rowAsArray: false, rows, rowCount: rows.length, command: 'SELECT' });
}

const DURATION = /,"durationMs":[\d.]+}$/;
const answered =
  (...expected: readonly string[]) =>
  ({ status, body }: Reply) =>
    status === 200 && expected.includes(body.replace(DURATION, '}'));
const refused =
  (expectedStatus: number, what: string) =>
  ({ status, body }: Reply) =>
    status === expectedStatus && body.includes(what);

const LARGE_ROWS_TEXT = Array.from({ length: LARGE_ROWS }, (_, i) => ({ v: `row ${i + 1}${'y'.repeat(1000)}` }));
const LARGE = result(LARGE_ROWS_TEXT, [column('v')]);
const SELECT_LARGE = 'SELECT v FROM large WHERE n = $1';
const SELECT_SHAPE = 'SELECT * FROM shape WHERE v = $1';
const NO_SHAPE = [['v'], ['v', 'w']].map((names) =>
  result(
    [],
    names.map((name) => column(name)),
  ),
);

/** Those that are asked most of the time first. */
const QUESTIONS: readonly ((value: string) => Question)[] = [
  (value) => ({ says: { sql: 'SELECT $1::text AS v', params: [value] }, isAnswer: answered(result([{ v: value }], [column('v')])) }),
  (value) => ({
    says: { sql: 'SELECT $1::text AS a, $2::int4 AS b', params: [value, value.length] },
    isAnswer: answered(result([{ a: value, b: value.length }], [column('a'), column('b', 23, 'int4')])),
  }),
  (value) => ({ says: { sql: SELECT_SHAPE, params: [value] }, isAnswer: answered(...NO_SHAPE) }),
  () => ({ says: { sql: SELECT_LARGE, params: [1] }, isAnswer: answered(result([{ v: 'x' }], [column('v')])) }),
  () => ({ says: { sql: 'SELECT 10 / length($1::text) AS v', params: [''] }, isAnswer: refused(400, '"sqlstate":"22012"') }),
  (value) => ({ says: { sql: 'SELECT $1::text AS v', params: [value, value] }, isAnswer: refused(400, 'params has 2') }),
  () => ({ says: { sql: SELECT_LARGE, params: [2] }, isAnswer: answered(LARGE) }),
  (value) => ({ says: { sql: `SELECT '${value}' AS v` }, isAnswer: answered(result([{ v: value }], [column('v')])) }),
];
const USUAL = 4;

let asked = 0;
let isOver = false;

async function read(id: number): Promise<void> {
  const client = await Client.open();
  const random = new SeededRandom(SEED + id);
  while (asked < REQUESTS) {
    asked += 1;
    const value = `v${id}.${asked}`;
    const kind = random.below(10) === 0 ? USUAL + random.below(QUESTIONS.length - USUAL) : random.below(USUAL);
    const question = QUESTIONS[kind]?.(value);
    if (question === undefined) throw new Error('there is no such question');
    const reply = await client.ask(question.says);
    if (!question.isAnswer(reply))
      expect.fail(`${JSON.stringify(question.says)}\nwas answered with\n${reply.status} ${reply.body.slice(0, 2_000)}`);
  }
  client.socket.end();
}

/** Others, as long as there are readers. */
async function meanwhile(act: (client: Client, random: SeededRandom) => Promise<Client | undefined>, id: number): Promise<void> {
  const random = new SeededRandom(SEED * 2 + id);
  let client = await Client.open();
  while (!isOver) client = (await act(client, random)) ?? client;
  client.socket.destroy();
}

async function expectStatus(client: Client, body: object, status: number): Promise<void> {
  const reply = await client.ask(body);
  if (reply.status !== status) expect.fail(`${JSON.stringify(body)}: ${reply.status} ${reply.body}`);
}

async function transact(...sqls: readonly string[]): Promise<void> {
  const statements = sqls.map((sql) => ({ sql }));
  const { status, body } = await doors.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements } });
  if (status !== 200) expect.fail(`${sqls.join('; ')}: ${JSON.stringify(body)}`);
}

const NEIGHBOURS: readonly ((client: Client, random: SeededRandom) => Promise<Client | undefined>)[] = [
  async (client) => {
    await expectStatus(client, { sql: 'SELECT pg_sleep(0.05)' }, 200);
    await delay(20);
    return undefined;
  },
  async (client) => {
    await expectStatus(client, { sql: 'SELECT pg_sleep(10)', timeoutMs: 30 }, 504);
    await delay(20);
    return undefined;
  },
  async (_, random) => {
    // Columns that are dropped still count towards the 1,600 of a table.
    await transact('ALTER TABLE shape RENAME TO narrow', 'ALTER TABLE wide RENAME TO shape');
    await delay(random.below(40));
    await transact('ALTER TABLE shape RENAME TO wide', 'ALTER TABLE narrow RENAME TO shape');
    await delay(random.below(40));
    return undefined;
  },
  async () => {
    await transact('LOCK TABLE shape IN ACCESS EXCLUSIVE MODE', 'SELECT pg_sleep(0.06)');
    await delay(100);
    return undefined;
  },
  // One that goes away while it is being run, or has hardly been sent.
  async (client, random) => {
    client.say({ sql: random.below(2) === 0 ? SELECT_SHAPE : 'SELECT $1::text AS v', params: ['gone'] });
    await delay(random.below(3));
    client.socket.resetAndDestroy();
    await delay(5);
    return Client.open();
  },
  // One that goes away while it is slow to read what it has asked for.
  async (client, random) => {
    client.socket.pause();
    client.say({ sql: SELECT_LARGE, params: [2] });
    await delay(random.below(30));
    client.socket.destroy();
    await delay(10);
    return Client.open();
  },
];

it(`${REQUESTS} requests of ${READERS} clients on ${BACKENDS} backends, each answered with its own`, { timeout: 900_000 }, async () => {
  const neighbours = Promise.all(NEIGHBOURS.map((act, id) => meanwhile(act, id)));
  try {
    await Promise.all(Array.from({ length: READERS }, (_, id) => read(id)));
  } finally {
    isOver = true;
    await neighbours;
  }
  expect(told.get('request.shared')).toBeGreaterThan(REQUESTS / 20);
  expect(told.get('request.requeued')).toBeGreaterThan(0);
});
