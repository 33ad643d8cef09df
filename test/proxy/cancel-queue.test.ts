import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { STATEMENT_BOUNDS } from '../../proxy/client-statements.ts';
import { OrganizationSessions } from '../../proxy/organization.ts';
import type { Settings } from '../../src/backend/session-state.ts';
import { LARGE_SQL_BYTES } from '../../src/rewriting/rewrite-sql.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { answer, FakeBackend, FakeClient, newMultiplexer, nothingIsLong, pipelineOf } from '../support/fake-relays.ts';

const BEGUN = Buffer.from('C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T', 'latin1');
const CANCELED = Buffer.from('E\0\0\0\x17SERROR\0C57014\0Mno\0\0Z\0\0\0\x05E', 'latin1');
const FIRST_ID = 20_000_000;
const ELSEWHERE: Settings = new Map([['timezone', 'Asia/Tokyo']]);

function clientOf(startup?: Settings) {
  const backend = new FakeBackend();
  const client = new FakeClient(newMultiplexer({ depth: 1, spread: 1 }), () => backend.lease, startup);
  return { backend, client };
}

/** Sends a cancel request. @returns whether its sender has been told that it has arrived */
function cancel(client: FakeClient | undefined): () => boolean {
  let isTold = false;
  void client?.relay.cancel().then(() => {
    isTold = true;
  });
  return () => isTold;
}

it('a cancel request that has to wait for a request of ours is said to have arrived when it has', async () => {
  const { backend, client } = clientOf(ELSEWHERE);
  client.asks('BEGIN');
  const [isTold, isOtherTold] = [cancel(client), cancel(client)];
  await delay(0);
  expect([backend.cancels.length, isTold()]).toEqual([0, false]);
  backend.says(answer('set'));
  backend.says(BEGUN);
  await delay(0);
  expect([backend.cancels.length, isTold()]).toEqual([1, false]);
  backend.cancels[0]?.();
  await delay(0);
  expect([backend.cancels.length, isTold(), isOtherTold()]).toEqual([1, true, true]);
});

it('one that has become needless is not sent', async () => {
  const { backend, client } = clientOf(ELSEWHERE);
  client.asks('BEGIN');
  const isTold = cancel(client);
  backend.says(Buffer.concat([answer('set'), BEGUN]));
  await delay(0);
  expect([backend.cancels.length, isTold()]).toEqual([0, true]);
});

it('one that comes while we ask the server on behalf of an idle client does not hit what the client asks next', async () => {
  const { backend, client } = clientOf();
  client.asks("SET timezone = 'Asia/Tokyo'");
  backend.says(answer('SET'));
  expect(backend.heard).toContain('pg_settings');
  const isTold = cancel(client);
  await delay(0);
  expect(isTold()).toBe(true);
  client.asks('SELECT 1');
  backend.says(answer('probe'));
  expect(backend.heard).toContain('SELECT 1');
  await delay(0);
  expect(backend.cancels.length).toBe(0);
});

it('one is sent although that for the request before has not arrived yet, when it has', async () => {
  const { backend, client } = clientOf();
  client.asks('BEGIN');
  backend.says(BEGUN);
  client.asks('SELECT 1');
  const isTold = cancel(client);
  backend.says(CANCELED);
  client.asks('ROLLBACK AND CHAIN');
  const isOtherTold = cancel(client);
  await delay(0);
  expect(backend.cancels.length).toBe(1);
  backend.cancels[0]?.();
  await delay(0);
  expect([backend.cancels.length, isTold(), isOtherTold()]).toEqual([2, true, false]);
  backend.cancels[1]?.();
  await delay(0);
  expect(isOtherTold()).toBe(true);
});

it('one of a client whose turn has not come is said to have arrived when its request is over', async () => {
  nothingIsLong();
  const { backend, clients } = pipelineOf(2);
  const isTold = cancel(clients[1]);
  await delay(0);
  expect(isTold()).toBe(false);
  backend.says(answer('first'));
  await delay(0);
  expect([backend.cancels.length, isTold()]).toEqual([1, false]);
  backend.cancels[0]?.();
  await delay(0);
  expect(isTold()).toBe(true);
});

it('one for what runs is sent although a text that came behind it is still being rewritten', async () => {
  const { backend, client } = clientOf();
  client.asks('BEGIN');
  Object.assign(client.relay.services, { rewriter: { rewriteLarge: () => new Promise(() => {}) } });
  client.asks(`SELECT '${'x'.repeat(LARGE_SQL_BYTES)}'`);
  expect(backend.heard).not.toContain('xxx');
  cancel(client);
  await delay(0);
  expect(backend.cancels.length).toBe(1);
});

it('one for what has taken too long does not hit what the client asks when that has ended just in time', async () => {
  const { backend, client } = clientOf();
  client.asks('BEGIN');
  backend.says(BEGUN);
  client.asks('SELECT 1');
  client.relay.stop();
  backend.says(Buffer.from('C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05T', 'latin1'));
  client.asks('SELECT 2');
  await delay(0);
  expect([backend.cancels.length, backend.heard.includes('SELECT 2')]).toEqual([1, false]);
  backend.cancels[0]?.();
  await expect.poll(() => backend.heard).toContain('SELECT 2');
});

it('a session that cancels another in SQL is not answered before that has arrived, nor asks anything meanwhile', async () => {
  const [canceling, canceled] = [clientOf(), clientOf()];
  const tenant = new OrganizationSessions(new MemoryReservation(new MemoryBudget(STATEMENT_BOUNDS), 'org'));
  for (const [own, { client }] of [
    [FIRST_ID, canceling],
    [FIRST_ID + 1, canceled],
  ] as const) {
    const addresses = { inet_client_addr: null, inet_client_port: null, inet_server_addr: null, inet_server_port: null };
    const listed = { number: own, keyId: '', describe: () => undefined, addresses, isShown: false, shown: () => undefined };
    const session = { ...listed, backendProcessId: 7, cancel: () => client.relay.cancel(), terminate() {} };
    Object.assign(client.relay.services, { processIds: tenant.join(own, session) });
  }
  canceled.client.asks('SELECT 1');
  canceling.client.asks(`SELECT pg_cancel_backend(${FIRST_ID + 1})`);
  canceling.client.asks('SELECT 2');
  await delay(0);
  expect([canceling.backend.heard, canceled.backend.cancels.length]).toEqual(['', 1]);
  canceled.backend.cancels[0]?.();
  await delay(0);
  expect(canceling.backend.heard).toMatch(/SELECT \(SELECT true AS pg_cancel_backend\).*SELECT 2/s);
});

it('nobody waits for one of a session that is over', async () => {
  const { backend, client } = clientOf(ELSEWHERE);
  client.asks('BEGIN');
  const isTold = cancel(client);
  client.relay.clientClosed();
  await expect.poll(() => backend.cancels.length).toBe(1);
  expect(isTold()).toBe(true);
  backend.cancels[0]?.();
});
