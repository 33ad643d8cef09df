import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { NO_SETTINGS } from '../../src/backend/session-state.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { answer, FakeBackend, FakeClient, newMultiplexer } from '../support/fake-relays.ts';

const ROW_BYTES = 200_000;
const ROW = Buffer.alloc(ROW_BYTES, 'x');
ROW.write('D', 0, 'latin1');
ROW.writeInt32BE(ROW_BYTES - 1, 1);
const ANSWER = Buffer.concat([ROW, answer('SELECT 1')]);

/** Two clients with a backend each, who have asked for much and take nothing; there is room for what waits for one of them. */
function deafClients() {
  const backends = [new FakeBackend(), new FakeBackend()] as const;
  const room = new MemoryBudget({ perOrganizationBytes: 300_000, allBytes: 10_000_000 });
  const clients = backends.map((backend) => {
    const leases = [backend.lease];
    const client = new FakeClient(newMultiplexer({ depth: 1, spread: 1 }), () => leases.pop(), NO_SETTINGS, room);
    client.isDeaf = true;
    client.asks('SELECT 1');
    backend.says(ANSWER);
    return client;
  }) as [FakeClient, FakeClient];
  return { backends, clients, room };
}

describe('an answer that its client does not take', () => {
  it('sets the backend free as long as there is room for it', () => {
    const { backends, room } = deafClients();
    expect(backends.map(({ released }) => released)).toEqual([1, 0]);
    expect(room.exhaustedBy('org', 150_000)).toBe('its own');
    expect(room.exhaustedBy('another', 150_000)).toBe(undefined);
  });

  it('keeps the backend where there is none, until it is taken', async () => {
    const { backends, clients, room } = deafClients();
    clients[1].listenAgain();
    await turn();
    expect(backends.map(({ released }) => released)).toEqual([1, 1]);
    clients[0].listenAgain();
    await turn();
    expect(backends.map(({ released }) => released)).toEqual([1, 1]);
    expect(room.exhaustedBy('org', 300_000)).toBe(undefined);
    expect(clients.map(({ heard }) => heard.length)).toEqual([ANSWER.length, ANSWER.length]);
  });

  it('makes room when its client goes', async () => {
    const { clients, room } = deafClients();
    for (const { relay } of clients) relay.clientClosed();
    await turn();
    expect(room.exhaustedBy('org', 300_000)).toBe(undefined);
  });

  it('does not keep the next request waiting that comes with the backend kept', async () => {
    const { backends, clients } = deafClients();
    clients[1].asks('SELECT 2');
    backends[1].says(answer('SELECT 1'));
    expect(backends[1].released).toBe(0);
    clients[1].listenAgain();
    await turn();
    expect(backends[1].released).toBe(1);
  });
});
