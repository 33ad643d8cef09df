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
