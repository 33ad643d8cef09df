import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { nonsense } from '../conversations/nonsense.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { mutate, mutatePacket } from '../support/mutation.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { SeededRandom } from '../support/random.ts';
import { makeScratch } from '../support/scratch.ts';
import { testVariables } from '../support/service.ts';
import { requestTls } from '../support/tls.ts';

/**
 * More than a hundred thousand damaged messages, the same ones in every run: the process lives, no lease is left, and whoever
 * comes next is served.
 */
const scratch = await makeScratch();
let installation: Installation;
/** Two processes of one Postern, by whether they speak TLS. */
let posterns: { readonly plain: PosternProcess; readonly tls: PosternProcess };
let organization: TestOrganization;
/** Whose logins fail, and are refused from this address after some. */
let victim: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  const variables = {
    ...testVariables(),
    POSTERN_WIRE_STATEMENT_TIMEOUT_MS: '2000',
    POSTERN_LOG_LEVEL: 'info',
  };
  const plain = await installation.start(variables);
  posterns = { plain, tls: await installation.start({ ...variables, ...(await tlsFiles()) }) };
  [organization, victim] = await Promise.all([plain.signUp(), plain.signUp()]);
});
afterAll(async () => {
  await installation.remove();
  await scratch.remove();
});

type Kind = keyof typeof posterns;

/** In each of the four storms. */
const MESSAGES = 25_000;
const ATTACKERS = 24;
const OPENINGS = ['SSLRequest', 'GSSENCRequest', 'CancelRequest 4711 0a0b0c0d', 'CancelRequest 1 00'];
const LOGINS = [
  'SASLInitialResponse SCRAM-SHA-256 n,,n=,r=abcdefghijklmnopqrstuvwx',
  'SASLInitialResponse SCRAM-SHA-256-PLUS p=tls-server-end-point,,n=,r=abcdefghijklmnopqrstuvwx',
  'SASLResponse c=biws,r=abcdefghijklmnopqrstuvwx,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=',
  'Password secret',
  'Query SELECT 1',
];

async function tlsFiles(): Promise<Record<string, string>> {
  const files = { POSTERN_TLS_CERT: join(scratch.path, 'tls.crt'), POSTERN_TLS_KEY: join(scratch.path, 'tls.key') };
  await writeFile(files.POSTERN_TLS_CERT, CERTIFICATE);
  await writeFile(files.POSTERN_TLS_KEY, CERTIFICATE_KEY);
  return files;
}

function open(kind: Kind): Promise<Duplex> {
  const { wirePort } = posterns[kind];
  if (kind === 'tls') return requestTls(wirePort).then(({ secure }) => secure);
  const socket = connect({ port: wirePort, host: '127.0.0.1', allowHalfOpen: true });
  return once(socket, 'connect').then(() => socket);
}

/** Sends it all, hangs up or closes its half, and waits for the end. */
async function send(socket: Duplex, messages: readonly Buffer[], random: SeededRandom): Promise<void> {
  socket.on('error', () => {});
  const closed = socket.destroyed ? undefined : new Promise((resolve) => socket.once('close', resolve));
  for (const chunk of random.cut(Buffer.concat(messages), 4_000)) socket.write(chunk);
  socket.resume();
  socket.once('end', () => socket.destroy());
  if (random.below(4) > 0) socket.end();
  else if (socket instanceof Socket && !(socket instanceof TLSSocket) && random.below(2) === 0) socket.resetAndDestroy();
  else socket.destroy();
  await closed;
}

/** A connection's worth of damage, and how many messages it is. */
type Attack = (kind: Kind, seed: number) => Promise<number>;

const beforeLogin: Attack = async (kind, seed) => {
  const random = new SeededRandom(seed);
  const startup = `Startup 3.${random.below(4)} user=${victim.id} database=${victim.id}`;
  const packets = [...OPENINGS.filter(() => random.below(8) === 0), startup].map(encodeFrontend);
  const damaged = random.below(packets.length + 1);
  const opening = packets.map((packet, index) => (index === damaged ? mutatePacket(packet, random) : packet));
  const logins = Array.from({ length: 10 }, () => mutate(encodeFrontend(LOGINS[random.below(LOGINS.length)] ?? ''), random));
  await send(await open(kind), [...opening, ...logins], random);
  return logins.length + 1;
};

const afterLogin: Attack = async (kind, seed) => {
  const random = new SeededRandom(seed);
  const socket = await open(kind);
  const client = WireClient.over(socket);
  const { id, apiKey } = organization;
  await logIn(client, { user: id, database: id, password: apiKey }, '3.0', new Map());
  const messages = nonsense(seed)
    .flatMap((lines) => lines.split('\n'))
    .map((line) => mutate(encodeFrontend(line), random));
  await send(socket, messages, random);
  return messages.length;
};

/** Many at a time, each with a number of its own, until enough has been sent. */
async function storm(attack: Attack, kind: Kind, firstSeed: number): Promise<void> {
  let seed = firstSeed;
  let sent = 0;
  await Promise.all(
    Array.from({ length: ATTACKERS }, async () => {
      while (sent < MESSAGES) {
        const own = seed++;
        const count = await attack(kind, own).catch((cause: unknown) => {
          throw new Error(`the attack with seed ${own} could not be carried out`, { cause });
        });
        sent += count;
      }
    }),
  );
}

const GAUGES = ['postern_leases{door="wire"}', 'postern_wire_connections', 'postern_wire_sessions', 'postern_lease_waiters'];

async function nothingIsLeft({ opsUrl }: PosternProcess): Promise<boolean> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text();
  const value = (name: string) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.slice(name.length) ?? 0,
    );
  return [...GAUGES, 'postern_backends{state="leased"}'].every((name) => value(name) === 0);
}

describe.each([
  ['before login', beforeLogin],
  ['after login', afterLogin],
] as const)('%s', (_when, attack) => {
  it.each([
    ['plain', 1_000_000],
    ['tls', 2_000_000],
  ] as const)('damaged messages harm nobody (%s, from seed %i)', async (kind, firstSeed) => {
    const postern = posterns[kind];
    await storm(attack, kind, firstSeed);
    await eventually('nobody holds anything any more', () => nothingIsLeft(postern));
    const client = await postern.connect(organization, kind === 'tls' ? { ssl: { rejectUnauthorized: false } } : {});
    expect((await client.query('SELECT $1::int AS one', [1])).rows).toEqual([{ one: 1 }]);
    await client.end();
    expect(postern.log().filter(({ level }) => Number(level) >= 50)).toEqual([]);
  });
});
