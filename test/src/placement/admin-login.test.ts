import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sslModeOf, withTlsEnvironment } from '../../../src/moving/definitions.ts';
import { parseUrl } from '../../../src/placement/admin-connection.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';

let scratch: Scratch;
let file: string;
beforeAll(async () => {
  scratch = await makeScratch();
  file = join(scratch.path, 'a file+more.pem');
  await writeFile(file, 'of TLS');
});
afterAll(() => scratch.remove());

const parse = (parameters: string) =>
  parseUrl(`postgres://ada:a%3Fb@db.test:5433/books${parameters.replace('FILE', encodeURIComponent(file))}`);

describe('the URL of a server', () => {
  it.each([
    ['', undefined],
    ['?sslmode=disable', undefined],
    ['?sslmode=no-verify', 'require'],
    ['?sslmode=require&uselibpqcompat=true', 'require'],
    ['?sslmode=verify-ca&sslrootcert=FILE&uselibpqcompat=true', 'verify-ca'],
    ['?sslmode=verify-full', 'verify-full'],
    ['?sslmode=verify-full&sslrootcert=FILE', 'verify-full'],
    ['?sslrootcert=FILE', 'verify-full'],
    ['?sslrootcert=system', 'verify-full'],
    ['?application_name=a&sslmode=no-verify&sslrootcert=system', 'verify-full'],
    ['?ssl=true', 'verify-full'],
  ])('%s says how libpq is to check it: %s', (parameters, mode) => {
    const parsed = parse(parameters);
    expect(parsed).toMatchObject({ host: 'db.test', port: 5433, user: 'ada', password: 'a?b', database: 'books' });
    expect(sslModeOf(parsed.ssl)).toBe(mode);
  });

  it('may have several hosts, each with its port, of which the first is tried first', () => {
    const url =
      'postgres://ada:a%3Fb,@db1.test:5433,db2.test,[::1]:5434,%2Fvar%2Frun/books?target_session_attrs=read-write&sslmode=no-verify';
    const { hosts, ...login } = parseUrl(url);
    expect(login).toMatchObject({ host: 'db1.test', port: 5433, user: 'ada', password: 'a?b,', database: 'books' });
    expect(sslModeOf(login.ssl)).toBe('require');
    expect(hosts?.all).toEqual([
      { host: 'db1.test', port: 5433 },
      { host: 'db2.test', port: 5432 },
      { host: '::1', port: 5434 },
      { host: '/var/run', port: 5432 },
    ]);
    expect(hosts?.current).toEqual({ host: 'db1.test', port: 5433 });
  });

  it.each(['any', 'primary', 'read-write'])('of one host may say target_session_attrs=%s too', (target) => {
    expect(parseUrl(`postgres://ada@db.test/books?target_session_attrs=${target}`)).toMatchObject({ host: 'db.test', database: 'books' });
  });

  it.each([
    [
      'postgres://db1.test,db2.test/?target_session_attrs=standby',
      'target_session_attrs=standby is not supported: any, primary, read-write',
    ],
    ['postgres://db.test/?target_session_attrs=', 'target_session_attrs= is not supported: any, primary, read-write'],
    ['postgres://db1.test,,db2.test/', 'Invalid URL: a host is missing'],
    ['postgres://ada@db1.test,/books', 'Invalid URL: a host is missing'],
  ])('%s is refused', (url, message) => {
    expect(() => parseUrl(url)).toThrow(message);
  });

  it('names the files that a client program reads', async () => {
    const { ssl, tlsFiles = {} } = parse(
      '?sslmode=verify-full&sslrootcert=FILE&sslcert=FILE&sslkey=FILE'.replaceAll('FILE', encodeURIComponent(file)),
    );
    expect(tlsFiles).toEqual({ sslrootcert: file, sslcert: file, sslkey: file });
    expect(await withTlsEnvironment({ ssl, tlsFiles }, async (env) => env)).toEqual({
      PGGSSENCMODE: 'disable',
      PGSSLMODE: 'verify-full',
      PGSSLROOTCERT: file,
      PGSSLCERT: file,
      PGSSLKEY: file,
    });
  });
});
