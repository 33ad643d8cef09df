import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openDoor } from './door.ts';

const APP = 'https://app.example';
const corsOf = (headers: Headers) =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-') || name === 'vary'));
const NAMED = {
  'access-control-allow-origin': APP,
  'access-control-expose-headers': expect.stringContaining('X-Request-Id'),
  vary: expect.stringMatching(/^Origin(?:, Accept-Encoding)?$/),
};

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_CORS_ORIGINS: `${APP}, http://localhost:5173` });
  acme = await service.signUp();
});
afterAll(() => service.close());

const ask = (path: string, origin: string | undefined, body: object, key = acme.apiKey) =>
  fetch(service.httpUrl + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...(origin === undefined ? {} : { origin }) },
    body: JSON.stringify(body),
  });
const preflight = (path: string, origin: string) =>
  fetch(service.httpUrl + path, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST' } });

describe('a page of an origin that may call', () => {
  it.each<[name: string, path: string, body: object, key: string | undefined, status: number]>([
    ['a result', '/api/query', { sql: 'select 1' }, undefined, 200],
    ['a stream', '/api/query', { sql: 'select repeat($$x$$, 1000) from generate_series(1, 1000)' }, undefined, 200],
    ['an SQL error', '/api/query', { sql: 'selec' }, undefined, 400],
    ['a refusal of its key', '/api/query', { sql: 'select 1' }, 'pst_0', 401],
    ['a path that is none', '/api/querys', {}, undefined, 404],
    ['a transaction', '/api/transaction', { statements: [{ sql: 'select 1' }] }, undefined, 200],
    ["what Neon's driver asks for", '/sql', { query: 'select 1', params: [] }, undefined, 200],
  ])('may read %s', async (_name, path, body, key, status) => {
    const reply = await ask(path, APP, body, key);
    await reply.text();
    expect([reply.status, corsOf(reply.headers)]).toEqual([status, NAMED]);
  });

  it.each(['/api/query', '/api/organization', '/sql'])('may ask first at %s', async (path) => {
    const { status, headers } = await preflight(path, 'http://localhost:5173');
    expect(status).toBe(204);
    expect(headers.get('access-control-allow-origin')).toBe('http://localhost:5173');
    expect(headers.get('access-control-allow-methods')).toBe(headers.get('allow'));
    expect(headers.get('access-control-allow-headers')).toMatch(/^Authorization, Content-Type, Idempotency-Key, .*Neon-Batch-Deferrable$/);
    expect(headers.get('access-control-max-age')).toBe('86400');
  });
});

it.each(['https://other.example', `${APP}.evil.example`, `${APP}:8443`, 'null'])('a page of %s may read nothing', async (origin) => {
  for (const path of ['/api/query', '/sql']) {
    const reply = await ask(path, origin, path === '/sql' ? { query: 'select 1', params: [] } : { sql: 'select 1' });
    await reply.text();
    expect([reply.status, corsOf(reply.headers)]).toEqual([200, { vary: 'Origin' }]);
    expect((await preflight(path, origin)).headers.has('access-control-allow-origin')).toBe(false);
  }
});

it('callers that are no pages are told nothing of it', async () => {
  for (const path of ['/api/query', '/sql']) expect(corsOf((await ask(path, undefined, { sql: 'select 1' })).headers)).toEqual({});
});

it('any page may call where the setting says so, and none where it says nothing', async () => {
  for (const [setting, allowed] of [
    ['*', '*'],
    ['', null],
  ] as const) {
    const door = await openDoor({ config: readConfig({ POSTERN_CORS_ORIGINS: setting }) });
    for (const path of ['/api/query', '/sql', '/nowhere', '/healthz']) {
      const reply = await fetch(door.url + path, { method: path === '/healthz' ? 'GET' : 'POST', headers: { origin: APP } });
      expect(reply.headers.get('access-control-allow-origin')).toBe(allowed);
    }
    for (const path of ['/api/query', '/sql']) {
      const reply = await fetch(door.url + path, { method: 'OPTIONS', headers: { origin: APP } });
      expect([reply.status, reply.headers.get('allow')]).toEqual([204, 'OPTIONS, POST']);
      expect(corsOf(reply.headers)).toEqual(allowed === null ? {} : expect.objectContaining({ 'access-control-allow-origin': allowed }));
    }
    await door.app.close();
  }
});

it.each([
  'app.example',
  'https://app.example/',
  'https://app.example:443',
  'https://APP.example',
  'ftp://app.example',
  '*,https://app.example',
])('%s is no list of origins', (setting) => {
  expect(() => readConfig({ POSTERN_CORS_ORIGINS: setting })).toThrow(/^POSTERN_CORS_ORIGINS: must be /);
});
