import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, type MockInstance, vi } from 'vitest';
import { Admission, bodyBoundsOf, holdBody } from '../../http/admission.ts';
import { MemoryBudget, MemoryReservation, SMALL_BYTES } from '../../src/runtime/memory-budget.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openDoor, standIn } from './door.ts';

const KIB = 1_024;
const MIB = 1_024 * KIB;
const TOO_MUCH = { kind: 'too_many_requests' };

/** As configured, with bodies of 10 bytes at most, all of which are counted. */
const roomOf = (perTenantBytes: number, allBytes: number) => {
  const budget = new MemoryBudget(
    bodyBoundsOf({
      POSTERN_HTTP_BODY_MAX_BYTES: 10,
      POSTERN_HTTP_BODIES_PER_TENANT_BYTES: perTenantBytes,
      POSTERN_HTTP_BODIES_BYTES: allBytes,
    }),
  );
  return (organizationId: string, bytes: number) => {
    const held = new MemoryReservation(budget, organizationId, 0);
    holdBody(held, bytes);
    return held;
  };
};

describe('the room for bodies', () => {
  it('is four of the largest for one organization', () => {
    const hold = roomOf(0, 0);
    const [last] = [1, 2, 3, 4].map(() => hold('a', 10));
    expect(() => hold('a', 1)).toThrow(expect.objectContaining(TOO_MUCH));
    last?.resize(7);
    hold('a', 3);
    expect(() => hold('a', 1)).toThrow(expect.objectContaining(TOO_MUCH));
  });

  it('is never all taken: nobody gets more than is left', () => {
    const hold = roomOf(80, 160);
    const first = hold('a', 80);
    hold('b', 40);
    expect(() => hold('b', 1)).toThrow(expect.objectContaining(TOO_MUCH));
    hold('c', 20);
    first.end();
    hold('b', 30);
    hold('d', 35);
  });

  it('is enough for the largest, whatever is configured', () => {
    const hold = roomOf(1, 1);
    const held = hold('a', 10);
    expect(() => hold('a', 1)).toThrow(expect.objectContaining(TOO_MUCH));
    held.end();
    hold('b', 10);
  });
});

let service: TestService;
let acme: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_HTTP_BODY_MAX_BYTES: String(MIB) });
  [acme, other] = await Promise.all([service.signUp('Acme'), service.signUp('Other')]);
});
afterAll(() => service.close());

const query = ({ apiKey: key }: TestOrganization, body: object | string) => service.call('POST', '/api/query', { key, body });
const large = (sql: string, bytes = 900 * KIB) => ({ sql: `${sql}/*${'x'.repeat(bytes)}*/` });

/** A request of which there is only the head, and what more of it is given. */
async function begin({ apiKey }: TestOrganization, length: string, ...more: string[]): Promise<Socket> {
  const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(
    `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n${length}\r\n\r\n`,
  );
  for (const part of more) socket.write(part);
  return socket;
}

describe('bodies of requests under way', () => {
  /** Of the budget for bodies, which are the first large ones that are held. */
  let taken = 0;
  let bodies: MemoryBudget | undefined;
  const held: number[] = [];
  let spy: MockInstance | undefined;
  beforeEach(() => {
    taken = 0;
    held.length = 0;
    const { count } = MemoryBudget.prototype;
    spy = vi.spyOn(MemoryBudget.prototype, 'count').mockImplementation(function (this: MemoryBudget, id, bytes) {
      count.call(this, id, bytes);
      if (bytes > SMALL_BYTES) bodies ??= this;
      if (this !== bodies) return;
      taken += bytes;
      if (bytes > 0) held.push(bytes);
    });
  });
  afterEach(async () => {
    await eventually('nothing is taken any more', () => taken === 0);
    spy?.mockRestore();
  });

  it('have so much room for each organization, before they are read', async () => {
    const before = await query(acme, large('select 1'));
    expect(before.status).toBe(200);
    const crowd = await Promise.all([1, 2, 3, 4].map(() => begin(acme, `Content-Length: ${MIB}`)));
    await eventually('all are counted', () => taken === 4 * MIB);
    const late = await begin(acme, 'Content-Length: 70000');
    const [answer] = await once(late, 'data');
    expect(String(answer)).toMatch(/^HTTP\/1\.1 429 /);
    expect(String(answer)).toMatch(/\r\nretry-after: 1\r\n/i);
    expect(String(answer)).toContain("the organization's in-flight requests exceed the memory limit");
    late.destroy();
    expect((await query(acme, { sql: 'select 1' })).status).toBe(200);
    expect((await query(acme, large('select 1', 60_000))).status).toBe(200);
    expect((await query(other, large('select 1'))).status).toBe(200);
    for (const socket of crowd) socket.destroy();
    await eventually('there is room', () => taken === 0);
    expect((await query(acme, large('select 1'))).status).toBe(200);
  });

  it('that do not tell their length are counted as they come', async () => {
    const chunk = `80000\r\n${' '.repeat(0x80000)}\r\n`;
    const crowd = await Promise.all([1, 2, 3, 4].map(() => begin(acme, 'Transfer-Encoding: chunked', chunk)));
    await eventually('all are counted', () => taken === 4 * 0x80000);
    const declared = await Promise.all([1, 2].map(() => begin(acme, `Content-Length: ${MIB}`)));
    await eventually('those too', () => taken === 4 * MIB);
    const [first, ...others] = crowd;
    first?.write(chunk);
    const [answer] = await once(first as Socket, 'data');
    expect(String(answer)).toMatch(/^HTTP\/1\.1 429 /);
    for (const socket of [...crowd, ...declared]) socket.destroy();
    expect(others).toHaveLength(3);
  });

  it.each([
    ['an answer', () => query(acme, large('select 1'))],
    ['a large answer', () => query(acme, large("select repeat('x', 3000000)"))],
    ['an error of Postgres', () => query(acme, large('selec'))],
    ['what is no JSON', () => query(acme, `{"sql":"${'x'.repeat(900 * KIB)}`)],
    ['what is no request', () => query(acme, { ...large('select 1'), more: 1 })],
    ['more than it may be', () => query(acme, large('select 1', 2 * MIB))],
    ['a transaction', () => service.call('POST', '/api/transaction', { key: acme.apiKey, body: { statements: [large('select 1')] } })],
    ['a call that has no body', () => service.call('POST', '/api/auth/rotate-key', { key: acme.apiKey, body: large('') })],
  ])('leave when there is %s', async (_name, ask) => {
    const { status } = await ask();
    expect(status).toBeLessThan(500);
    expect(status).not.toBe(429);
    expect(held).toHaveLength(_name === 'more than it may be' ? 0 : 1);
  });

  it('leave when their client goes, once what it has asked for is over', async () => {
    const body = JSON.stringify(large('select pg_sleep(60)', 500 * KIB));
    const socket = await begin(acme, `Content-Length: ${body.length}`, body);
    const isLeased = async () => /^postern_backends\{state="leased"\} 1$/m.test(await (await fetch(`${service.opsUrl}/metrics`)).text());
    await eventually('it runs', isLeased);
    expect(taken).toBe(body.length);
    socket.destroy();
    await eventually('it is over', async () => !(await isLeased()));
  });
});

it('whoever goes before it is known who they are takes no place', async () => {
  const tenant = { organization: { id: 'org_a' }, key: { id: 'key_a', prefix: 'pst_a' } };
  let isKnown = (_tenant: unknown) => {};
  const authenticate = vi.fn(() => new Promise<never>((resolve) => (isKnown = resolve as typeof isKnown)));
  const { authenticator } = standIn();
  const enter = vi.spyOn(Admission.prototype, 'enter');
  const { app, port } = await openDoor({ authenticator: { ...authenticator, authenticate } });
  const socket = connect(port, '127.0.0.1');
  socket.write('GET /api/auth/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pst_a\r\n\r\n');
  await eventually('it is asked', () => authenticate.mock.calls.length === 1);
  const connections = () => new Promise<number>((resolve) => app.server.getConnections((_error, count) => resolve(count)));
  socket.destroy();
  await eventually('it has gone', async () => (await connections()) === 0);
  isKnown(tenant);
  await app.close();
  expect(enter).not.toHaveBeenCalled();
  enter.mockRestore();
});
