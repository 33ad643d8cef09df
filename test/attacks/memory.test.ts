import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { PLACEMENTS, type TestOrganization, testVariables } from '../support/service.ts';
import { message, query } from './stalls/attacker.ts';

const MIB = 1_048_576;
/** Far above the 128 MiB that unread results of one organization may take: twelve results of 30 MB were measured at up to 460. */
const ABOVE_IDLE_MAX = 512 * MIB;
const CONTROLS = 6_000_000;

const RAISE = `do $$ begin raise exception '%', repeat(chr(1), ${CONTROLS}) using detail = repeat(chr(2), ${CONTROLS}); end $$`;
const NOTICES = `do $$ begin for i in 1..100 loop raise notice '%', repeat(chr(1), 100000) using detail = repeat(chr(1), 100000), hint = repeat(chr(1), 100000); end loop; end $$`;
/** Rows that make a stream, and then an error. */
const LATE_ERROR = `select repeat('x', 1000), case when n = 200 then (select late_error()) end from generate_series(1, 200) n`;
const LATE_ERROR_FUNCTION = `create function late_error() returns int language plpgsql as $f$ begin ${RAISE.slice('do $$ begin '.length, -' end $$'.length)} end $f$`;

interface Attack {
  /** Ends the sentence "replies that nobody reads: …". */
  readonly what: string;
  readonly sockets: number;
  readonly open: (scene: Scene, index: number) => Promise<Socket>;
  /** With a schema for each organization its replies are rewritten, so that they are tried there too. */
  readonly isRewritten?: true;
}

interface Scene {
  readonly postern: PosternProcess;
  readonly organization: TestOrganization;
}

const api = (path: string, body: (index: number) => object, headers: (index: number) => Record<string, string> = () => ({})) => {
  return async ({ postern, organization }: Scene, index: number) => {
    const authorization = `Bearer ${organization.apiKey}`;
    return post(postern, path, JSON.stringify(body(index)), { authorization, 'content-type': 'application/json', ...headers(index) });
  };
};

const neon =
  (body: object) =>
  async ({ postern, organization: { id, apiKey } }: Scene) =>
    post(postern, '/sql', JSON.stringify(body), { 'neon-connection-string': `postgres://${id}:${apiKey}@postern.test/${id}` });

const wire =
  (sql: string) =>
  async ({ postern, organization: { id, apiKey } }: Scene) => {
    const client = await postern.connect({ id, apiKey, orgName: '', email: '' });
    const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
    stream.removeAllListeners('data');
    stream.pause();
    stream.write(query(sql));
    return stream;
  };

const webSocket =
  (sql: string) =>
  async ({ postern, organization: { id, apiKey } }: Scene) => {
    const socket = connect(Number(new URL(postern.httpUrl).port), '127.0.0.1');
    socket.write(
      'GET /v2 HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n',
    );
    await once(socket, 'readable');
    const parameters = Buffer.from(`\0\x03\0\0user\0${id}\0database\0${id}\0\0`, 'latin1');
    const startup = Buffer.concat([Buffer.alloc(4), parameters]);
    startup.writeInt32BE(startup.length);
    socket.write(frame(Buffer.concat([startup, message('p', `${apiKey}\0`), query(sql)])));
    return socket;
  };

/** As a client masks it, with zeros. */
function frame(bytes: Buffer): Buffer {
  const head = Buffer.from([0x82, 0xfe, 0, 0, 0, 0, 0, 0]);
  head.writeUInt16BE(bytes.length, 2);
  return Buffer.concat([head, bytes]);
}

const ATTACKS: readonly Attack[] = [
  { what: 'errors of /api/query', sockets: 12, open: api('/api/query', () => ({ sql: RAISE })), isRewritten: true },
  {
    what: 'errors as lines',
    sockets: 12,
    open: api(
      '/api/query',
      () => ({ sql: RAISE }),
      () => ({ accept: 'application/x-ndjson' }),
    ),
  },
  {
    what: 'errors behind lines that have been sent',
    sockets: 12,
    open: api(
      '/api/query',
      () => ({ sql: LATE_ERROR }),
      () => ({ accept: 'application/x-ndjson' }),
    ),
  },
  { what: 'errors of /api/transaction', sockets: 12, open: api('/api/transaction', () => ({ statements: [{ sql: RAISE }] })) },
  { what: 'errors of a migration', sockets: 6, open: api('/api/migrations', (n) => ({ name: `m${n}`, sql: RAISE })) },
  { what: 'errors of /sql', sockets: 12, open: neon({ query: RAISE, params: [] }) },
  { what: 'errors of a batch of /sql', sockets: 12, open: neon({ queries: [{ query: RAISE, params: [] }] }) },
  { what: 'warnings', sockets: 60, open: api('/api/query', () => ({ sql: NOTICES })), isRewritten: true },
  { what: 'warnings of a migration', sockets: 6, open: api('/api/migrations', (n) => ({ name: `m${n}`, sql: NOTICES })) },
  {
    what: 'replays',
    sockets: 240,
    open: api(
      '/api/query',
      () => ({ sql: `select repeat('x', 1000000)` }),
      () => ({ 'idempotency-key': 'again' }),
    ),
  },
  { what: 'large values of /api/query', sockets: 4, open: api('/api/query', () => ({ sql: `select repeat(chr(1), ${CONTROLS})` })) },
  {
    what: 'results of /api/transaction',
    sockets: 12,
    open: api('/api/transaction', () => ({ statements: [{ sql: `select repeat('x', 30000000)` }] })),
  },
  { what: 'results of /sql', sockets: 12, open: neon({ query: `select repeat('x', 30000000)`, params: [] }) },
  { what: 'errors at the wire door', sockets: 12, open: wire(RAISE), isRewritten: true },
  { what: 'notices at the wire door', sockets: 12, open: wire(NOTICES), isRewritten: true },
  { what: 'errors over a WebSocket', sockets: 12, open: webSocket(RAISE), isRewritten: true },
];

describe.each(PLACEMENTS)('with a %s for each organization, replies that nobody reads', (kind) => {
  let installation: Installation;
  let scene: Scene;
  const sockets: Socket[] = [];

  beforeEach(async () => {
    installation = await makeInstallation();
    const postern = await installation.start({ ...testVariables(), POSTERN_PLACEMENT: kind });
    scene = { postern, organization: await postern.signUp() };
    await postern.query(scene.organization, LATE_ERROR_FUNCTION);
    await postern.call('POST', '/api/query', {
      key: scene.organization.apiKey,
      body: { sql: `select repeat('x', 1000000)` },
      headers: { 'idempotency-key': 'again' },
    });
  });
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await installation?.remove();
  });

  async function openAll(count: number, open: (index: number) => Promise<Socket>): Promise<{ count: number }> {
    const begun = { count: 0 };
    for (let index = 0; index < count; index += 1) {
      const socket = await open(index);
      sockets.push(socket);
      socket.on('error', () => {});
      for (const event of ['readable', 'close']) {
        socket.once(event, () => {
          begun.count += 1;
        });
      }
    }
    return begun;
  }

  const attacks = ATTACKS.filter(({ isRewritten }) => kind === 'database' || isRewritten);

  it.each(attacks)('take no more memory than they may: $what', async ({ sockets: count, open }) => {
    const idle = residentBytes(scene.postern.pid);
    let peak = idle;
    const watching = setInterval(() => {
      peak = Math.max(peak, residentBytes(scene.postern.pid));
    }, 20);
    try {
      const begun = await openAll(count, (index) => open(scene, index));
      await eventually('all have begun to be answered', () => begun.count >= count);
    } finally {
      clearInterval(watching);
    }
    expect((peak - idle) / MIB).toBeLessThan(ABOVE_IDLE_MAX / MIB);
    // Nobody else is harmed by them.
    const other = await scene.postern.signUp('Other');
    expect((await scene.postern.query(other, 'select 1 as one')).body.rows).toEqual([{ one: 1 }]);
  });
});

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1_024;
}

function post(postern: PosternProcess, path: string, body: string, headers: Record<string, string>): Socket {
  const socket = connect(Number(new URL(postern.httpUrl).port), '127.0.0.1');
  const lines = Object.entries({ host: '127.0.0.1', ...headers, 'content-length': String(Buffer.byteLength(body)) });
  socket.write(`POST ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`);
  return socket;
}
