import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../src/backend/session-state.ts';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { requestCancel } from '../support/cancel-request.ts';
import { SeededRandom } from '../support/random.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/**
 * Clients of both doors whose quick reads share a few backends, beside locks and cancel requests. No value comes twice, and every
 * reply is compared with what it has to be.
 */
const REQUESTS = Number(process.env.STRESS_REQUESTS ?? 5_000);
const CLIENTS = 8;
const SEED = 5_087;
const READ = 'SELECT $1::text AS v';
const READ_GUARDED = 'SELECT n, $1::text AS v FROM guarded';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  vi.spyOn(StatementLatency.prototype, 'isShort', 'get').mockReturnValue(true);
  vi.spyOn(StatementLatency.prototype, 'isQuick', 'get').mockReturnValue(true);
  vi.spyOn(StatementLatency.prototype, 'mayFollow').mockReturnValue(true);
  vi.spyOn(LatencyBaseline.prototype, 'stallTimeoutMs', 'get').mockReturnValue(5);
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4', POSTERN_PIPELINE_SPREAD: '1', POSTERN_QUEUE_TIMEOUT_MS: '60000' });
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE guarded AS SELECT 7 AS n');
});
afterAll(async () => {
  await service.close();
  vi.restoreAllMocks();
});

let asked = 0;
const textOf = (random: SeededRandom) => (random.below(8) === 0 ? READ_GUARDED : READ);

async function readOverHttp(id: number): Promise<void> {
  const random = new SeededRandom(SEED + id);
  while (asked < REQUESTS) {
    asked += 1;
    const [sql, value] = [textOf(random), `http ${id}.${asked}`];
    const { status, body } = await service.query(organization, sql, [value]);
    expect([status, body.rows?.[0]?.v]).toEqual([200, value]);
  }
}

/** It sets nothing, so that its reads can share a backend with those over HTTP. */
async function readOverWire(id: number): Promise<void> {
  const client = await WireClient.open('127.0.0.1', service.wirePort);
  await logIn(client, { user: organization.id, database: organization.id, password: organization.apiKey }, '3.0', new Map());
  const random = new SeededRandom(SEED * 2 + id);
  for (const [name, sql] of Object.entries({ read: READ, guarded: READ_GUARDED })) await ask(client, `Parse ${name} ${sql}`, 'Sync');
  while (asked < REQUESTS) {
    asked += 1;
    const value = `wire.${id}.${asked}`;
    const cancels = id === 0 && random.below(4) === 0;
    const name = textOf(random) === READ ? 'read' : 'guarded';
    const answer = ask(client, `Bind "" ${name} [${value}]`, 'Execute "" 0', 'Sync');
    if (cancels) await requestCancel(service, client.processId, client.secretKey);
    const heard = await answer;
    const isCanceled = cancels && heard.some((message) => message.includes('57014'));
    if (!isCanceled) expect(heard.find((message) => message.startsWith('DataRow'))).toContain(value);
  }
}

async function ask(client: WireClient, ...messages: readonly string[]): Promise<readonly string[]> {
  await client.write(Buffer.concat(messages.map(encodeFrontend)));
  const heard: string[] = [];
  for (;;) {
    const message = await client.read();
    if (message === undefined || message === 'EOF') throw new Error(`heard only ${heard.join('; ')}`);
    heard.push(describeBackend(message));
    if (message.type === 'Z') return heard;
  }
}

async function lockNowAndThen(): Promise<void> {
  const locker = await service.connect(organization);
  while (asked < REQUESTS) {
    await locker.query('BEGIN; LOCK TABLE guarded IN ACCESS EXCLUSIVE MODE');
    await delay(20);
    await locker.query('COMMIT');
    await delay(50);
  }
  await locker.end();
}

it(`${REQUESTS} requests of ${CLIENTS} clients at each door, each answered with its own`, { timeout: 900_000 }, async () => {
  const readers = Array.from({ length: CLIENTS }, (_, id) => [readOverHttp(id), readOverWire(id)]);
  await Promise.all([...readers.flat(), lockNowAndThen()]);
  const count = (name: string) => service.observations.filter((observation) => observation.name === name).length;
  expect(count('request.shared')).toBeGreaterThan(REQUESTS / 20);
  expect(count('request.requeued')).toBeGreaterThan(0);
});
