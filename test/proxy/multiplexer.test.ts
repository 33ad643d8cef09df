import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { ServiceError } from '../../src/errors.ts';
import type { Multiplexer } from '../../src/multiplex/multiplexer.ts';
import {
  answer,
  contendedMultiplexer,
  FakeBackend,
  FakeClient,
  latencyOf,
  newMultiplexer,
  nothingIsLong,
  pipelineOf,
  READY,
} from '../support/fake-relays.ts';

const BEGUN = Buffer.from('C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T', 'latin1');
const CANCELED = Buffer.from('E\0\0\0\x17SERROR\0C57014\0Mno\0\0', 'latin1');

it('each hears its own answer, wherever what the backend says is cut in two', () => {
  const answers = ['first', 'second', 'third'].map(answer);
  const bytes = Buffer.concat(answers);
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const { backend, clients } = pipelineOf(3);
    backend.says(bytes.subarray(0, cut));
    backend.says(bytes.subarray(cut));
    expect(clients.map(({ heard }) => heard)).toEqual(answers.map((one) => one.toString('latin1')));
    expect(backend.released).toBe(1);
  }
});

it('no more than eight are at one backend at once, where that is the depth', () => {
  const { backend, clients } = pipelineOf(10, false);
  const asked = () => backend.heard.split('SELECT 1').length - 1;
  expect(asked()).toBe(8);
  backend.says(Buffer.concat(['first', 'second', 'third'].map(answer)));
  expect(clients.map(({ heard }) => heard !== '')).toEqual([true, true, true, ...Array(7).fill(false)]);
});

it('a backend is not given back before the last cancel request to it has arrived', async () => {
  nothingIsLong();
  const { backend, clients } = pipelineOf(2);
  const [first, second] = clients;
  void first?.relay.cancel();
  await delay(0);
  // Both wait until the first request has arrived.
  void first?.relay.cancel();
  void first?.relay.cancel();
  for (let i = 0; i < 3; i += 1) {
    await delay(0);
    backend.cancels[i]?.();
    await delay(0);
    if (i === 0) {
      expect(backend.cancels.length).toBe(2);
      backend.says(Buffer.concat([CANCELED, READY, answer('second')]));
      expect(backend.released).toBe(0);
    }
  }
  expect(backend.cancels.length).toBe(2);
  expect(backend.released).toBe(1);
  expect(second?.heard).toContain('second');
});

it('a client that cancels what is about to be run again has it canceled', async () => {
  const { backend, later, clients } = pipelineOf(2);
  await expect.poll(() => backend.cancels.length).toBe(1);
  backend.says(CANCELED);
  void clients[0]?.relay.cancel();
  backend.says(READY);
  expect(clients[0]?.heard).toBe('');
  await delay(0);
  expect(later.cancels.length).toBe(1);
});

it('a cancel request is sent although one for the request before, on another backend, has not arrived yet', async () => {
  const { backend, later, clients } = pipelineOf(1);
  void clients[0]?.relay.cancel();
  backend.says(Buffer.concat([CANCELED, READY]));
  clients[0]?.asks('SELECT 2');
  void clients[0]?.relay.cancel();
  await delay(0);
  expect([backend, later].map(({ cancels }) => cancels.length)).toEqual([1, 1]);
  for (const one of [backend, later]) one.cancels[0]?.();
  later.says(Buffer.concat([CANCELED, READY]));
  await delay(0);
  expect([backend, later].map(({ released }) => released)).toEqual([1, 1]);
});

it("a session's start is restored only when a cancel request that was meant for the RESET has arrived", async () => {
  const backend = new FakeBackend();
  const client = new FakeClient(newMultiplexer({ depth: 1, spread: 1 }), () => backend.lease, new Map([['timezone', 'Asia/Tokyo']]));
  const restored = () => backend.heard.split('set_config').length - 1;
  client.asks('RESET ALL');
  backend.says(answer('set'));
  void client.relay.cancel();
  backend.says(answer('reset'));
  backend.says(answer('probe'));
  await delay(0);
  expect(restored()).toBe(1);
  backend.cancels[0]?.();
  await expect.poll(restored).toBe(2);
  backend.says(answer('set'));
  expect(client.heard).toBe(answer('reset').toString('latin1'));
});

it('one whose key has been revoked does not stay among those that wait', async () => {
  const multiplexer = contendedMultiplexer();
  const client = new FakeClient(multiplexer, () => new ServiceError('key_revoked', 'revoked'));
  const waiting = new Set<object>();
  multiplexer.wait = (one) => void waiting.add(one);
  multiplexer.stopWaiting = (one) => void waiting.delete(one);
  client.asks('SELECT 1');
  await expect.poll(() => client.end?.reason).toBe('ended');
  expect(waiting.size).toBe(0);
});

it('only whose turn it is can be found at a backend', () => {
  const { backend, clients } = pipelineOf(2);
  const found = () => clients.map(({ relay }) => relay.lease !== undefined);
  expect(found()).toEqual([true, false]);
  backend.says(answer('first'));
  expect(found()).toEqual([false, true]);
});

it('nothing is sent behind a request that is sent ahead, whatever its client says meanwhile', () => {
  const { backend, later, clients } = pipelineOf(2, false);
  for (const sql of ['SELECT 1', 'BEGIN']) clients[0]?.asks(sql);
  backend.says(answer('first'));
  expect(clients[1]?.relay.lease).toBe(backend.lease);
  backend.says(answer('second'));
  expect(backend.heard + later.heard).not.toContain('BEGIN');
});

it('what a client has said before it closed its side is run, also where it had to wait', async () => {
  const { backend, later, clients } = pipelineOf(2);
  clients[1]?.asks('SELECT 2');
  clients[1]?.relay.clientEnded();
  backend.says(Buffer.concat([answer('first'), answer('second')]));
  expect(later.heard).toContain('SELECT 2');
  later.says(answer('third'));
  await expect.poll(() => clients[1]?.end?.reason).toBe('client_gone');
  expect(clients[1]?.heard).toBe(Buffer.concat([answer('second'), answer('third')]).toString('latin1'));
});

it('one that vanishes does not make its request a long one', async () => {
  nothingIsLong();
  const { backend, clients, multiplexer } = pipelineOf(2);
  clients[0]?.relay.clientClosed();
  await delay(0);
  backend.says(answer('first'));
  expect(latencyOf(multiplexer)?.isShort).toBe(true);
});

it.each([
  ['is lost', (backend: FakeBackend) => backend.receiver?.closed(undefined)],
  ['says what is no protocol', (backend: FakeBackend) => backend.says(Buffer.from('!!!!!!'))],
])('the one whose turn it is hears of it when their backend %s, and the next one is answered by another', async (_, happens) => {
  const { backend, later, clients } = pipelineOf(3);
  const [answered, hit, next] = clients;
  backend.says(answer('first'));
  happens(backend);
  later.says(answer('third'));
  await delay(0);
  expect(answered?.end).toBeUndefined();
  expect(hit?.end?.finalError?.toString('latin1')).toContain('C08006\0');
  expect(next?.heard).toBe(answer('third').toString('latin1'));
});

describe('one whose read has changed a setting', () => {
  const CHANGED = Buffer.from('S\0\0\0\x12TimeZone\0Asia\0', 'latin1');

  /** @returns what runs while its answer has come, and that of the one behind it has not */
  function changedBefore() {
    const pipeline = pipelineOf(2);
    pipeline.backend.says(Buffer.concat([CHANGED, answer('first')]));
    expect(pipeline.later.heard).toContain('SELECT 1');
    expect(pipeline.backend.heard).not.toContain('pg_settings');
    return pipeline;
  }

  it('finds out what there is before it goes on, when the others have been heard', () => {
    const { backend, clients } = changedBefore();
    clients[0]?.asks('SELECT 2');
    expect(clients[0]?.relay.activity).toBe('waiting');
    backend.says(answer('unheard'));
    expect(backend.heard).toMatch(/pg_settings.*SELECT 2/s);
    expect(clients[0]?.heard).toBe(Buffer.concat([CHANGED, answer('first')]).toString('latin1'));
    expect(backend.released).toBe(0);
  });

  it('leaves nothing behind when it vanishes before that', async () => {
    nothingIsLong();
    const { backend, clients } = changedBefore();
    clients[0]?.relay.clientClosed();
    await delay(0);
    expect(backend.released).toBe(0);
    backend.says(answer('unheard'));
    await expect.poll(() => clients[0]?.end?.reason).toBe('client_gone');
    expect([backend.released, backend.clean, backend.cancels.length]).toEqual([1, false, 0]);
  });

  it('hears of it when their backend is lost before that', async () => {
    const { backend, clients } = changedBefore();
    backend.receiver?.closed(undefined);
    await expect.poll(() => clients[0]?.end?.reason).toBe('backend_lost');
  });
});

describe('one that takes its time to read what it has been told of its answer', () => {
  const BEGINNING = Buffer.from('D\0\0\0\x06\0\0', 'latin1');

  it('does not hold up those behind it', async () => {
    const { backend, later, clients } = pipelineOf(2);
    backend.says(BEGINNING);
    await expect.poll(() => later.heard).toContain('SELECT 1');
    later.says(answer('elsewhere'));
    expect(clients[1]?.heard).toBe(answer('elsewhere').toString('latin1'));
    backend.says(Buffer.concat([answer('first'), answer('unheard')]));
    expect(clients[0]?.heard).toBe(Buffer.concat([BEGINNING, answer('first')]).toString('latin1'));
    expect(clients[1]?.heard).not.toContain('unheard');
    expect([backend.released, later.released, backend.cancels.length]).toEqual([1, 1, 0]);
  });

  it.each([0, 1, 8, 16, 20])('nor is what is said to nobody told to anybody, cut after %i bytes', async (cut) => {
    const { backend, later, clients } = pipelineOf(3);
    clients[2]?.relay.clientClosed();
    backend.says(BEGINNING);
    await expect.poll(() => later.heard).toContain('SELECT 1');
    const rest = Buffer.concat([answer('second'), answer('third')]);
    backend.says(answer('first'));
    backend.says(rest.subarray(0, cut));
    backend.says(rest.subarray(cut));
    expect(clients[1]?.heard).toBe('');
    expect(backend.released).toBe(1);
  });

  it('what has gone elsewhere does not keep their backend busy for long', async () => {
    const { backend, later, clients } = pipelineOf(2);
    backend.says(BEGINNING);
    await expect.poll(() => later.heard).toContain('SELECT 1');
    backend.says(answer('first'));
    await expect.poll(() => backend.cancels.length).toBe(1);
    backend.says(Buffer.concat([CANCELED, READY]));
    backend.cancels[0]?.();
    await expect.poll(() => backend.released).toBe(1);
    expect(clients[1]?.heard).toBe('');
  });

  it('one behind it that has been canceled is canceled where it is run', async () => {
    const { backend, later, clients } = pipelineOf(2);
    void clients[1]?.relay.cancel();
    backend.says(BEGINNING);
    await expect.poll(() => later.cancels.length).toBe(1);
  });

  it('one behind it goes on with what it has asked since', async () => {
    const { backend, later, clients } = pipelineOf(2);
    clients[1]?.asks('SELECT 2');
    backend.says(BEGINNING);
    await expect.poll(() => later.heard).toContain('SELECT 1');
    expect(later.heard).toMatch(/SELECT 1.*SELECT 2/s);
    later.says(Buffer.concat([answer('elsewhere'), answer('then')]));
    expect(clients[1]?.heard).toBe(Buffer.concat([answer('elsewhere'), answer('then')]).toString('latin1'));
  });
});

it('a cancel request that meets another in the middle of its answer does it no harm', async () => {
  const { backend, later, clients } = pipelineOf(3);
  await expect.poll(() => backend.cancels.length).toBe(1);
  backend.says(answer('first'));
  backend.says(Buffer.from('D\0\0\0\x06\0\0', 'latin1'));
  backend.says(Buffer.concat([CANCELED, READY]));
  later.says(answer('again'));
  expect(clients[1]?.heard).toBe(answer('again').toString('latin1'));
});

describe('where enough backends are at work', () => {
  /** One client each is at work on two backends, and four more come. */
  function spread(latencyOf: (multiplexer: Multiplexer) => void) {
    const backends = [new FakeBackend(), new FakeBackend(), new FakeBackend()];
    const free = backends.map(({ lease }) => lease);
    const multiplexer = newMultiplexer({ depth: 8, spread: 2 });
    latencyOf(multiplexer);
    const clients = Array.from({ length: 6 }, () => new FakeClient(multiplexer, () => free.shift()));
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (const client of clients) client.asks('SELECT 1');
    clock.mockRestore();
    return { clients, loads: backends.map(({ heard }) => heard.split('SELECT 1').length - 1) };
  }
  const run = (multiplexer: Multiplexer, aloneMs: number) => {
    const latency = latencyOf(multiplexer);
    for (let i = 0; i < 100; i += 1) latency?.ran(1, 10, multiplexer.baseline);
    latency?.ranAlone(aloneMs);
  };

  it('what is quick is shared out among them', () => {
    expect(spread((multiplexer) => run(multiplexer, 0.1)).loads).toEqual([3, 3, 0]);
  });

  it('what is short but not quick takes a backend as long as there is one', () => {
    expect(spread((multiplexer) => run(multiplexer, 5)).loads[2]).toBeGreaterThan(0);
  });

  it('one that is slow for once is left to it, and those behind it go elsewhere', async () => {
    const backends = [new FakeBackend(), new FakeBackend()];
    const free = [backends[0]?.lease];
    const multiplexer = newMultiplexer({ depth: 8, spread: 1 });
    run(multiplexer, 0.1);
    const clients = Array.from({ length: 2 }, () => new FakeClient(multiplexer, () => free.shift()));
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (const client of clients) client.asks('SELECT 1');
    clock.mockRestore();
    free.push(backends[1]?.lease);
    await expect.poll(() => backends[1]?.heard).toContain('SELECT 1');
    expect(backends[0]?.cancels.length).toBe(0);
    backends[1]?.says(answer('second'));
    backends[0]?.says(Buffer.concat([answer('first'), answer('unheard')]));
    expect(clients.map(({ heard }) => heard)).toEqual(['first', 'second'].map((tag) => answer(tag).toString('latin1')));
  });

  it('nobody gets on with one that is not to be lent again', () => {
    const backends = [new FakeBackend(), new FakeBackend()];
    const free = backends.map(({ lease }) => lease);
    const multiplexer = newMultiplexer({ depth: 8, spread: 1 });
    run(multiplexer, 0.1);
    const clients = Array.from({ length: 3 }, () => new FakeClient(multiplexer, () => free.shift()));
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (const client of clients) {
      client.asks('SELECT 1');
      if (backends[0] !== undefined) backends[0].session.retired = true;
    }
    clock.mockRestore();
    expect(backends.map(({ heard }) => heard.split('SELECT 1').length - 1)).toEqual([1, 2]);
  });

  it('those of clients that are in a transaction and ask nothing are not at work', () => {
    const backends = Array.from({ length: 4 }, () => new FakeBackend());
    const free = backends.map(({ lease }) => lease);
    const multiplexer = newMultiplexer({ depth: 8, spread: 2 });
    run(multiplexer, 0.1);
    const clients = backends.map(() => new FakeClient(multiplexer, () => free.shift()));
    for (const [i, client] of clients.slice(0, 2).entries()) {
      client.asks('BEGIN');
      backends[i]?.says(BEGUN);
    }
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (const client of clients.slice(2)) client.asks('SELECT 1');
    clock.mockRestore();
    expect(free.length).toBe(0);
  });
});
