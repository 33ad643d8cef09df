import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { type Door, openDoor } from './door.ts';

let door: Door;
beforeAll(async () => {
  door = await openDoor();
});
afterAll(() => door.app.close());

/** As it is sent: fetch would decompress it. */
const get = async (path: string, headers: Readonly<Record<string, string>> = {}) => {
  const { statusCode, headers: received, rawPayload } = await door.app.inject({ url: path, headers: { host: 'localhost', ...headers } });
  return { status: statusCode, headers: received, body: rawPayload };
};
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

describe('the console', () => {
  it('is a page with a strict policy that nothing stores, and all of whose URLs are relative', async () => {
    const { status, headers, body } = await get('/console');
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': POLICY,
      'cross-origin-opener-policy': 'same-origin',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    });
    const urls = [...String(body).matchAll(/(?:href|src)="([^"]+)"/g)].map(([, url]) => url);
    expect(urls).toHaveLength(3);
    expect(urls.filter((url) => !/^console\/assets\/\w+-[A-Z0-9]{8}\.(?:js|css|svg)$/.test(url ?? ''))).toEqual([]);
    expect(await get('/console/')).toMatchObject({ status: 302, headers: { location: '../console' } });
  });

  it('has files that are stored forever, compressed by the build', async () => {
    const [script = ''] = /console\/assets\/main-\w+\.js/.exec(String((await get('/console')).body)) ?? [];
    const plain = await get(`/${script}`);
    expect(plain.headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'public, max-age=31536000, immutable',
      vary: 'Accept-Encoding',
    });
    const br = await get(`/${script}`, { 'accept-encoding': 'gzip, br' });
    expect([br.headers['content-encoding'], brotliDecompressSync(br.body).equals(plain.body)]).toEqual(['br', true]);
    const gzip = await get(`/${script}`, { 'accept-encoding': 'gzip', authorization: 'Bearer x' });
    expect([gzip.headers['content-encoding'], gunzipSync(gzip.body).equals(plain.body)]).toEqual(['gzip', true]);
    expect((await get('/console/assets/..%2findex.html')).status).toBe(404);
    expect((await get('/console/assets/none.js')).status).toBe(404);
  });

  it('is not there where POSTERN_CONSOLE is off', async () => {
    const { app } = await openDoor({ config: readConfig({ POSTERN_CONSOLE: 'off' }) });
    for (const url of ['/console', '/console/', '/console/assets/x.js'])
      expect((await app.inject({ url, headers: { host: 'localhost' } })).statusCode).toBe(404);
    await app.close();
  });
});
