import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { servedHosts } from '../../http/headers.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient } from './raw-client.ts';

describe('on a loopback address', () => {
  const isServed = servedHosts({ POSTERN_HOST: '127.0.0.1', POSTERN_PUBLIC_HOST: 'Db.example' });

  it.each([
    'localhost',
    'localhost:8080',
    'LOCALHOST.',
    'app.localhost:1',
    '127.0.0.1',
    '127.1.2.3:8080',
    '[::1]',
    '[::1]:8080',
    'db.example',
    'DB.example.:443',
    '',
    undefined,
  ])('%s is served', (host) => expect(isServed(host)).toBe(true));

  it.each([
    'evil.example',
    'evil.example:8080',
    '127.0.0.1.evil.example',
    '127.evil.example',
    'localhost.evil.example',
    'notlocalhost',
    'db.example.evil.example',
    '192.0.2.1',
    '[2001:db8::1]',
    '0.0.0.0',
    'localhost:8080@evil.example',
  ])('%s is not', (host) => expect(isServed(host)).toBe(false));

  it.each(['localhost', '::1', 'postern.localhost', '127.0.0.2'])('which %s is', (own) => {
    const served = servedHosts({ POSTERN_HOST: own, POSTERN_PUBLIC_HOST: undefined });
    expect(['localhost', 'evil.example', 'db.example'].map(served)).toEqual([true, false, false]);
  });
});

it.each(['0.0.0.0', '::', '192.0.2.1', 'db.example'])('on another one (%s), every host is served', (own) => {
  expect(servedHosts({ POSTERN_HOST: own, POSTERN_PUBLIC_HOST: undefined })('evil.example')).toBe(true);
});

describe('a host that is not served', () => {
  let service: TestService;
  let acme: TestOrganization;
  const portOf = (url: string) => Number(new URL(url).port);
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PUBLIC_HOST: 'db.example' });
    acme = await service.signUp();
  });
  afterAll(() => service.close());

  const to = (host: string, request: string) => request.replace(/Host: .*\r\n/, `Host: ${host}\r\n`);
  const query = (host: string) => to(host, plainRequest(acme.apiKey, { sql: 'SELECT 1 AS one' }));
  const get = (path: string, ...headers: string[]) =>
    ['GET ', path, ' HTTP/1.1\r\nHost: \r\n', ...headers.map((h) => `${h}\r\n`), '\r\n'].join('');

  it.each([
    ['for a query', query, 421, 'misdirected_request'],
    ['for a page', (host: string) => to(host, get('/docs')), 421, 'misdirected_request'],
    ['for no path', (host: string) => to(host, get('/nowhere')), 421, 'misdirected_request'],
    // Whose clients understand 400 alone.
    ['at the Neon door', (host: string) => query(host).replace('/api/query', '/sql'), 400, '28000'],
  ])('is told the name of the setting %s, on any connection', async (_, ask, status, code) => {
    for (const client of [await RawClient.open(portOf(service.httpUrl)), await openElsewhere(portOf(service.httpUrl))]) {
      const refused = await client.ask(ask('evil.example:80'));
      expect([refused.status, JSON.parse(refused.body).code]).toEqual([status, code]);
      expect(refused.body).toContain('POSTERN_PUBLIC_HOST');
      for (const host of ['db.example', 'localhost']) {
        const served = await client.ask(ask(host));
        // The page explains all errors.
        if (served.status !== 200) expect(served.body).not.toContain('POSTERN_PUBLIC_HOST');
      }
      client.socket.destroy();
    }
  });

  it('is not, behind requests that are served', async () => {
    const client = await RawClient.open(portOf(service.httpUrl));
    const statuses: number[] = [];
    for (const host of ['localhost', 'evil.example', 'localhost', 'evil.example']) statuses.push((await client.ask(query(host))).status);
    expect(statuses).toEqual([200, 421, 200, 421]);
    client.socket.destroy();
  });

  it('has no health and metrics', async () => {
    const client = await RawClient.open(portOf(service.opsUrl));
    expect((await client.ask(to('evil.example', get('/metrics')))).status).toBe(421);
    expect((await client.ask(to('localhost', get('/metrics')))).status).toBe(200);
    client.socket.destroy();
  });

  const upgrade = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=='];

  it.each([
    ['for another host', to('evil.example', get('/v2', ...upgrade)), 421],
    ['with two hosts', to('localhost', get('/v2', 'Host: localhost', ...upgrade)), 400],
    ['without a host', get('/v2', ...upgrade).replace(/Host: .*\r\n/, ''), 400],
  ])('gets no WebSocket: %s', async (_, request, status) => {
    const client = await RawClient.open(portOf(service.httpUrl));
    expect((await client.ask(request)).status).toBe(status);
    client.socket.destroy();
  });

  it('is needed for a WebSocket', async () => {
    const client = await RawClient.open(portOf(service.httpUrl));
    client.send(to('db.example:80', get('/v2', ...upgrade)));
    const answer = await new Promise<string>((resolve) => client.socket.once('data', (data) => resolve(data.toString('latin1'))));
    expect(answer).toMatch(/^HTTP\/1\.1 101 /);
    client.socket.destroy();
  });
});
