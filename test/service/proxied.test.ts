import { once } from 'node:events';
import { connect, Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Where proxies are; everything else on this machine is not one. */
const PROXY = '127.0.0.2';
const CLIENT = '198.51.100.7';
const HEADER = `PROXY TCP4 ${CLIENT} 10.0.0.1 56324 12901\r\n`;
const LOCAL = Buffer.from('0d0a0d0a000d0a515549540a20000000', 'hex');

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_PROXY_PROTOCOL_FROM: `${PROXY}/32, 2001:db8::/32`, POSTERN_TRUST_PROXY: CLIENT });
  organization = await service.signUp();
});
afterAll(() => service.close());

const httpPort = () => Number(new URL(service.httpUrl).port);

/** A connection from the proxy, or from another address. */
async function dial(port: number, localAddress = PROXY): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true }).on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Writes the header before anything else. */
class ProxiedSocket extends Socket {
  override connect(...[port, host]: unknown[]): this {
    super.connect({ port: Number(port), host: String(host), localAddress: PROXY });
    this.write(HEADER);
    return this;
  }
}

/** @returns all that comes until the other side closes */
async function answerTo(socket: Socket, ...pieces: readonly (string | Buffer)[]): Promise<string> {
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk.toString('latin1');
  });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const piece of pieces) {
    socket.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await closed;
  return answer;
}

function request(method: string, path: string, headers: readonly string[] = [], body = ''): string {
  const authorization = `Authorization: Bearer ${organization.apiKey}`;
  const length = body === '' ? [] : [`Content-Length: ${body.length}`, 'Content-Type: application/json'];
  const head = [`${method} ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close', authorization, ...headers, ...length];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

const query = (...headers: readonly string[]) => request('POST', '/api/query', headers, '{"sql":"SELECT 1"}');

/** The addresses of the requests over HTTP since `from`. */
const sourcesSince = (from: number) =>
  service.observations.slice(from).flatMap((one) => (one.name === 'http.request' ? [one.origin.sourceIp] : []));

const refusals = () => service.observations.flatMap((one) => (one.name === 'proxy_header.refused' ? [one] : []));

describe('a connection from a proxy', () => {
  it.each([
    ['on the fast path', () => [HEADER + query()], CLIENT],
    ['in the server', () => [HEADER + request('GET', '/api/auth/me')], CLIENT],
    ['in two packets', () => [HEADER, query()], CLIENT],
    ['byte by byte', () => [...HEADER, query()], CLIENT],
    [
      'with X-Forwarded-For, as far as that address is trusted',
      () => [HEADER + query('X-Forwarded-For: 203.0.113.1, 192.0.2.9')],
      '192.0.2.9',
    ],
    ['of the proxy itself', () => [LOCAL, query()], PROXY],
    ['of whom it does not know', () => [`PROXY UNKNOWN\r\n${query()}`], PROXY],
  ])('over HTTP has the address that it says: %s', async (_name, pieces, source) => {
    const from = service.observations.length;
    expect(await answerTo(await dial(httpPort()), ...pieces())).toMatch(/^HTTP\/1\.1 200 /);
    await eventually('the request is known', () => sourcesSince(from).length > 0);
    expect(sourcesSince(from)).toEqual([source]);
  });

  it('keeps its address for further requests, and for one that asks for an unknown protocol', async () => {
    const from = service.observations.length;
    const socket = await dial(httpPort());
    let received = '';
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
    });
    const answers = () => received.match(/HTTP\/1\.1 200 /g)?.length ?? 0;
    const kept = query().replace('Connection: close\r\n', '');
    const upgrade = query('Upgrade: h2c').replace('Connection: close', 'Connection: upgrade');
    for (const [index, text] of [HEADER + kept, upgrade, request('GET', '/api/auth/me')].entries()) {
      socket.write(text);
      await eventually('it is answered', () => answers() > index);
    }
    await eventually('the requests are known', () => sourcesSince(from).length === 3);
    expect(new Set(sourcesSince(from))).toEqual(new Set([CLIENT]));
  });

  it('at the wire door has the address that it says', async () => {
    const from = service.observations.length;
    const client = await service.connect(organization, { stream: () => new ProxiedSocket() });
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
    expect(service.observations.slice(from)).toContainEqual(
      expect.objectContaining({ name: 'login.succeeded', origin: expect.objectContaining({ sourceIp: CLIENT }) }),
    );
  });

  it('counts for the networks of a key', async () => {
    const { body } = await service.call('GET', '/api/keys', { key: organization.apiKey });
    const made = await service.call('POST', '/api/keys', {
      key: organization.apiKey,
      body: { name: 'there', scope: 'read', networks: [`${CLIENT}/32`] },
    });
    expect([body.keys.length, made.status]).toEqual([1, 201]);
    const there = query().replace(organization.apiKey, made.body.apiKey);
    expect(await answerTo(await dial(httpPort()), HEADER + there)).toMatch(/^HTTP\/1\.1 200 /);
    expect(await answerTo(await dial(httpPort()), LOCAL, there)).toMatch(/^HTTP\/1\.1 403 /);
    expect(await answerTo(await dial(httpPort(), '127.0.0.1'), there)).toMatch(/^HTTP\/1\.1 403 /);
  });

  it.each([
    ['http', 'no header', () => query()],
    ['http', 'a damaged one', () => HEADER.replace('TCP4', 'TCP6') + query()],
    ['http', 'a TLS handshake', () => Buffer.from('1603010200010001fc', 'hex')],
    ['wire', 'no header', () => Buffer.from('0000000804d2162f', 'hex')],
    ['wire', 'version 3', () => Buffer.from('0d0a0d0a000d0a515549540a31110000', 'hex')],
  ] as const)('is closed without a byte at the %s door: %s', async (door, _name, bytes) => {
    const before = refusals().length;
    expect(await answerTo(await dial(door === 'http' ? httpPort() : service.wirePort), bytes())).toBe('');
    await eventually('it is counted', () => refusals().length > before);
    expect(refusals().slice(before)).toEqual([expect.objectContaining({ door })]);
  });

  it('is counted when it ends within the header, and not when a health check has only connected', async () => {
    const before = refusals().length;
    for (const port of [httpPort(), service.wirePort]) {
      for (const bytes of ['', LOCAL, 'PROXY TCP4 ']) {
        const socket = await dial(port);
        const answer = answerTo(socket);
        socket.end(bytes);
        expect(await answer).toBe('');
      }
    }
    await eventually('both doors have closed theirs', () => refusals().length === before + 2);
    const metrics = await (await fetch(`${service.opsUrl}/metrics`)).text();
    for (const door of ['http', 'wire']) {
      const count = refusals().filter((one) => one.door === door).length;
      expect(metrics).toContain(`postern_proxy_headers_refused_total{door="${door}"} ${count}`);
    }
  });

  it('may take as long as a login for its header, and ends with the service', async () => {
    const hasty = await startTestService({ POSTERN_PROXY_PROTOCOL_FROM: '127.0.0.0/8', POSTERN_LOGIN_TIMEOUT_MS: '100' });
    const ports = [Number(new URL(hasty.httpUrl).port), hasty.wirePort];
    for (const port of ports) expect(await answerTo(await dial(port), 'PROXY ')).toBe('');
    await eventually('both are counted', () => hasty.observations.filter(({ name }) => name === 'proxy_header.refused').length === 2);
    await hasty.close();

    const patient = await startTestService({ POSTERN_PROXY_PROTOCOL_FROM: '127.0.0.0/8' });
    const waiting = [Number(new URL(patient.httpUrl).port), patient.wirePort].map(async (port) => answerTo(await dial(port), 'PROXY '));
    await eventually('both have connected', () => patient.observations.filter(({ name }) => name.endsWith('.connected')).length === 2);
    await patient.close();
    expect(await Promise.all(waiting)).toEqual(['', '']);
  });
});

describe('a connection from elsewhere', () => {
  it('has no header read at the doors, and none is read at the ops port', async () => {
    const before = refusals().length;
    expect(await answerTo(await dial(httpPort(), '127.0.0.1'), query())).toMatch(/^HTTP\/1\.1 200 /);
    expect(await answerTo(await dial(httpPort(), '127.0.0.1'), HEADER + query())).toMatch(/^HTTP\/1\.1 400 /);
    expect(await answerTo(await dial(service.wirePort, '127.0.0.1'), HEADER)).toBe('');
    const opsPort = Number(new URL(service.opsUrl).port);
    expect(await answerTo(await dial(opsPort), request('GET', '/healthz'))).toMatch(/^HTTP\/1\.1 200 /);
    expect(await answerTo(await dial(opsPort), HEADER)).toMatch(/^HTTP\/1\.1 400 /);
    expect(refusals().length).toBe(before);
  });
});
