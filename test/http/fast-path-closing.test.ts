import { once } from 'node:events';
import { type AddressInfo, connect, Server } from 'node:net';
import pg from 'pg';
import { afterEach, describe, expect, inject, it, vi } from 'vitest';
import { createHttpApp } from '../../http/app.ts';
import { RequestOutcomes } from '../../http/problems.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { standIn } from './door.ts';
import { openElsewhere, plainRequest, RawClient } from './raw-client.ts';
import { deliver, serverEnd } from './server-end.ts';

/** Longer than any test may take. */
const PATIENT_MS = 60_000;

let service: TestService;
let acme: TestOrganization;
let port: number;
afterEach(() => service.close());

async function start(shutdownMs = PATIENT_MS): Promise<void> {
  service = await startTestService({ POSTERN_SHUTDOWN_TIMEOUT_MS: String(shutdownMs) });
  acme = await service.signUp();
  port = Number(new URL(service.httpUrl).port);
}

const request = (sql: string) => plainRequest(acme.apiKey, { sql });

/** In a statement: waits there for as long as the gate is shut. */
const GATE = 'pg_advisory_xact_lock_shared(1)';

/** @returns opens it again */
async function shutGate(): Promise<() => Promise<void>> {
  const url = new URL(inject('clusterUrl'));
  url.pathname = `/${acme.id}`;
  const keeper = new pg.Client({ connectionString: url.href });
  await keeper.connect();
  await keeper.query('select pg_advisory_lock(1)');
  return () => keeper.end();
}

/** Connections whose query runs. */
async function busy(...statements: readonly string[]): Promise<RawClient[]> {
  const clients = await Promise.all(statements.map(() => RawClient.open(port)));
  for (const [index, sql] of statements.entries()) clients[index]?.send(request(sql));
  const granted = () => service.observations.filter(({ name }) => name === 'lease.granted').length;
  await eventually('all are at work', () => granted() === statements.length);
  return clients;
}

/** @returns what to wait for until it is closed; all connections know that it closes */
async function beginClosing(): Promise<{ readonly closed: Promise<void> }> {
  const idle = await RawClient.open(port);
  await idle.ask(request('select 1'));
  const closed = service.close();
  await idle.rest;
  return { closed };
}

describe('once the service closes', () => {
  it('what is under way is answered, and its connections end with it', async () => {
    await start();
    const openGate = await shutGate();
    const clients = await busy(`select ${GATE}, 1 as n`, `select 1 / length(${GATE}::text)`, `select ${GATE}`);
    await deliver(clients[2] as RawClient, request('create table never_made ()'));
    const ends = Promise.all(clients.map((client) => client.replies()));
    const { closed } = await beginClosing();
    await openGate();
    await closed;
    for (const { replies, whole } of await ends) {
      expect(whole).toBe(true);
      expect(replies).toHaveLength(1);
      expect(replies[0]?.headers.Connection).toBe('close');
      expect(replies[0]?.headers).not.toHaveProperty('Keep-Alive');
    }
    expect((await ends).map(({ replies }) => replies[0]?.status)).toEqual([200, 400, 200]);
    expect(JSON.stringify(service.observations)).not.toContain('never_made');
  });

  it('what waits behind a reply that has begun is told so', async () => {
    await start();
    const client = await RawClient.open(port);
    client.socket.pause();
    client.send(request("select g, repeat('x', 10000) as text from generate_series(1, 4000) g"));
    await eventually('the reply has begun', () => client.socket.bytesRead > 0 || client.socket.readableLength > 0);
    await deliver(client, request('create table never_made ()'));
    const { closed } = await beginClosing();
    client.socket.resume();
    const { replies, whole } = await client.replies();
    await closed;
    expect(whole).toBe(true);
    expect(replies.map(({ status, headers }) => [status, headers.Connection])).toEqual([
      [200, 'keep-alive'],
      [503, 'close'],
    ]);
    expect(JSON.stringify(service.observations)).not.toContain('never_made');
  });

  it("what waits for its turn at Node's server is refused", async () => {
    await start();
    const openGate = await shutGate();
    const client = await openElsewhere(port);
    client.send(request(`select ${GATE}`));
    await deliver(client, request('create table never_made ()'));
    const ends = client.replies();
    const { closed } = await beginClosing();
    await openGate();
    await closed;
    const { replies, whole } = await ends;
    expect(whole).toBe(true);
    expect(replies.map(({ status, headers }) => [status, headers.connection ?? headers.Connection])).toEqual([
      [200, 'keep-alive'],
      [503, 'close'],
    ]);
    expect(JSON.stringify(service.observations)).not.toContain('never_made');
  });

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'what was on its way is answered, and its connection ends with it, %s',
    async (_where, open) => {
      await start();
      const client = await open(port);
      await client.ask(request('select 1'));
      const closed = service.close();
      await client.ask(request('select 2 as n')).then(({ status, headers, body }) => {
        expect([status, headers.Connection, JSON.parse(body).rows]).toEqual([200, 'close', [{ n: 2 }]]);
      });
      await client.rest;
      await closed;
    },
  );

  it.each([
    ['on the fast path', RawClient.open, 0] as const,
    ['elsewhere', openElsewhere, 0] as const,
    ['on the fast path, though it has to wait for many turns', RawClient.open, 5] as const,
    ['elsewhere, though it has to wait for many turns', openElsewhere, 5] as const,
  ])('what has come while the process was busy is answered too, %s', async (_where, open, tookMs) => {
    await start();
    const client = await open(port);
    const { inputs } = service.service.router;
    const { now } = inputs;
    let aheadMs = 0;
    // Whatever is handled takes an organization so long that it may handle nothing in the next turns.
    const slowNow = () => {
      aheadMs += tookMs;
      return now() + aheadMs;
    };
    Object.assign(inputs, { now: slowNow });
    await client.ask(request('select 1'));
    let asked: ReturnType<RawClient['ask']> | undefined;
    const askAndBeBusy = () => {
      asked = client.ask(request('select 2 as n'));
      // Longer than what is on its way is waited for.
      for (const until = performance.now() + 300; performance.now() < until; );
    };
    const { close } = Server.prototype;
    const spy = vi.spyOn(Server.prototype, 'close').mockImplementation(function (this: Server, done) {
      if ((this.address() as AddressInfo | null)?.port === port) setImmediate(askAndBeBusy);
      return close.call(this, done);
    });
    await service.close();
    spy.mockRestore();
    expect(await asked).toMatchObject({ status: 200, body: expect.stringContaining('[{"n":2}]') });
    await client.rest;
  });

  it('connections on which no reply is due end soon', async () => {
    await start();
    const openGate = await shutGate();
    const [working] = await busy(`select ${GATE}`);
    const mute = await RawClient.open(port);
    await serverEnd(mute);
    const idle = await RawClient.open(port);
    expect(await idle.ask(request('select 1'))).toMatchObject({ status: 200 });
    const half = await RawClient.open(port);
    await deliver(half, request('select 1').slice(0, -3));
    const ends = Promise.all([mute, idle, half].map((client) => client.replies()));
    const closed = service.close();
    // While another reply is due, for as long as that takes.
    for (const end of await ends) expect(end).toEqual({ replies: [], whole: true });
    await openGate();
    await closed;
    expect((await working?.replies())?.replies).toMatchObject([{ status: 200 }]);
  });

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'what takes too long is cut off, %s',
    async (_where, open) => {
      const shutdownMs = 500;
      await start(shutdownMs);
      const slow = await open(port);
      const [add, told] = [vi.spyOn(RequestOutcomes.prototype, 'add'), vi.spyOn(RequestOutcomes.prototype, 'allReported')];
      slow.send(request('select pg_sleep(60)'));
      await eventually('it is at work', () => service.observations.some(({ name }) => name === 'lease.granted'));
      const since = performance.now();
      await service.close();
      // A timer may be early by less than a millisecond.
      expect(performance.now() - since).toBeGreaterThan(shutdownMs - 1);
      expect(add).toHaveBeenCalledTimes(1);
      expect(add).toHaveBeenCalledBefore(told);
      vi.restoreAllMocks();
      expect(await slow.replies()).toEqual({ replies: [], whole: true });
      expect(service.observations).toContainEqual(
        expect.objectContaining({ name: 'http.request', outcome: expect.objectContaining({ httpStatus: 499, sqlstate: '57014' }) }),
      );
    },
  );
});

it('who comes while the door closes is turned away', async () => {
  const app = createHttpApp(standIn());
  const come = vi.fn(() => once(connect(doorPort, '127.0.0.1'), 'connect'));
  app.addHook('preClose', async () => {
    await expect(come()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port: doorPort } = app.server.address() as AddressInfo;
  await app.close();
  expect(come).toHaveBeenCalledTimes(1);
});
