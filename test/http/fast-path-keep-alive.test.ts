import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { FastPath } from '../../http/fast-path/connection.ts';
import { NO_LIMITS } from '../../src/catalog/limits.ts';
import type { Tenant } from '../../src/router/lease.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { SeededRandom } from '../support/random.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openDoor, standIn } from './door.ts';
import { plainRequest, RawClient } from './raw-client.ts';

let service: TestService;
let acme: TestOrganization;
let port: number;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
  port = Number(new URL(service.httpUrl).port);
});
afterAll(() => service.close());

/** That an emitter has more and more listeners. */
const warnings: Error[] = [];
process.on('warning', (warning) => {
  if (warning.name === 'MaxListenersExceededWarning') warnings.push(warning);
});

const leave = vi.spyOn(FastPath.prototype, 'leave');
const number = (n: number, ...headers: readonly string[]) =>
  plainRequest(acme.apiKey, { sql: 'select $1::int as n', params: [n] }, ...headers);
const rowsOf = ({ body }: { readonly body: string }) => JSON.parse(body).rows;

describe('on one connection', () => {
  it('thousands of requests are answered, small and large, right and wrong', async () => {
    leave.mockClear();
    const client = await RawClient.open(port);
    for (let n = 0; n < 3_000; n += 1) {
      expect(rowsOf(await client.ask(number(n)))).toEqual([{ n }]);
      if (n % 100 === 0) {
        expect((await client.ask(plainRequest(acme.apiKey, { sql: 'select 1/0' }))).status).toBe(400);
        const large = plainRequest(acme.apiKey, { sql: "select repeat('x', 1000) as text from generate_series(1, 300)" });
        expect(rowsOf(await client.ask(large))).toHaveLength(300);
      }
    }
    expect(leave).not.toHaveBeenCalled();
    client.socket.destroy();
    expect(warnings).toEqual([]);
  });

  it('bodies may come in many pieces', async () => {
    leave.mockClear();
    const client = await RawClient.open(port);
    const random = new SeededRandom(3);
    for (let n = 0; n < 100; n += 1) {
      const bytes = Buffer.from(plainRequest(acme.apiKey, { sql: `select ${n} as n /* ${'x'.repeat(random.below(50_000))} */` }));
      const bodyStart = bytes.indexOf('\r\n\r\n') + 4;
      const headEnd = bodyStart + random.below(20);
      client.send(bytes.subarray(0, headEnd));
      for (const piece of random.cut(bytes.subarray(headEnd), 10_000)) {
        await turn();
        client.send(piece);
      }
      expect(rowsOf(await client.reply())).toEqual([{ n }]);
    }
    expect(leave).not.toHaveBeenCalled();
    client.socket.destroy();
  });

  it('those of other kinds may come in between', async () => {
    leave.mockClear();
    const client = await RawClient.open(port);
    for (let n = 0; n < 300; n += 1) {
      const { status, body } = await client.ask(n % 2 === 0 ? number(n) : number(n, 'X-Other: 1'));
      expect([status, JSON.parse(body).rows]).toEqual([200, [{ n }]]);
    }
    expect(leave).toHaveBeenCalledTimes(1);
    client.socket.destroy();
    expect(warnings).toEqual([]);
  });

  it('each may ask for another protocol, which nobody speaks', async () => {
    const client = await RawClient.open(port);
    for (let n = 0; n < 50; n += 1) {
      const { status, body } = await client.ask(
        number(n, 'Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'),
      );
      expect([status, JSON.parse(body).rows]).toEqual([200, [{ n }]]);
    }
    client.socket.destroy();
    expect(warnings).toEqual([]);
  });
});

it('many connections at once get each their own', async () => {
  const random = new SeededRandom(5);
  const serve = async (of: number) => {
    const client = await RawClient.open(port);
    for (let round = 0; round < 20; round += 1) {
      const n = of * 1_000 + round;
      for (const piece of random.cut(Buffer.from(number(n)), 1 + random.below(400))) client.send(piece);
      expect(rowsOf(await client.reply())).toEqual([{ n }]);
    }
    client.socket.destroy();
  };
  await Promise.all(Array.from({ length: 60 }, (_, of) => serve(of)));
});

describe('through TLS', () => {
  /** More than a TLS record holds, with a key that is known and opens nothing. */
  const nobody = (id: string, ...headers: readonly string[]) =>
    plainRequest('pst_nobody', { sql: `select '${'x'.repeat(40_000)}'` }, `X-Request-Id: ${id}`, ...headers);

  it.each([
    ['plain requests stay on the fast path', [], 0],
    ['others leave it', ['X-Other: 1'], 1],
  ] as const)('%s', async (_what, headers, left) => {
    leave.mockClear();
    const { authenticator } = standIn();
    const known = {
      organization: { id: 'org_nobody', limits: NO_LIMITS },
      limitsId: 'org_nobody',
      key: { replacedBy: null },
      revoked: new AbortController().signal,
    } as Tenant;
    const door = await openDoor({
      authenticator: { ...authenticator, recognize: () => known },
      tls: { cert: CERTIFICATE, key: CERTIFICATE_KEY },
    });
    const client = await RawClient.openTls(door.port);
    for (let n = 0; n < 30; n += 1) {
      const { status, headers: told } = await client.ask(nobody(`tls-${n}`, ...headers));
      expect([status, told['x-request-id']]).toEqual([401, `tls-${n}`]);
    }
    expect(leave).toHaveBeenCalledTimes(left);
    client.send(nobody('behind-1', ...headers) + nobody('behind-2') + nobody('behind-3'));
    for (const n of [1, 2, 3]) expect((await client.reply()).headers['x-request-id']).toBe(`behind-${n}`);
    const closed = door.app.close();
    expect(await client.replies()).toEqual({ replies: [], whole: true });
    await closed;
  });
});
