import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseUrl, waitForServer } from '../../src/placement/admin-connection.ts';
import { startTestService } from '../support/service.ts';
import { needDebian } from './debian.ts';
import { startTlsServer } from './moves/tls-server.ts';

let tls: Awaited<ReturnType<typeof startTlsServer>>;
beforeAll(async () => {
  needDebian('postgresql-15');
  tls = await startTlsServer();
});
afterAll(() => tls.stop());

/** The same server twice: by an address that its certificate does not have, and by the name that it has. */
function urlOfBoth(parameters: string): string {
  return tls.url(parameters).replace('@', `@${tls.address}:${tls.server.port},`);
}

it('of a URL with several hosts, each is checked by its own name, and one with another is not used', async () => {
  const url = urlOfBoth(`target_session_attrs=primary&sslmode=verify-full&sslrootcert=${tls.certificate}`);
  const login = parseUrl(url);
  await waitForServer(login, 0);
  expect(login.hosts?.current.host).toBe('localhost');
  const unchecked = parseUrl(urlOfBoth('target_session_attrs=primary&sslmode=no-verify'));
  await waitForServer(unchecked, 0);
  expect(unchecked.hosts?.current.host).toBe(tls.address);

  // The service's own sessions, and those of organizations, go there too. The server takes none without TLS.
  const service = await startTestService({ DATABASE_URL: url });
  const organization = await service.signUp();
  expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  const client = await service.connect(organization);
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await client.end();
  await service.close();
});

it('no host is used when none is the one that its certificate names', async () => {
  const other = tls.url(`target_session_attrs=primary&sslmode=verify-full&sslrootcert=${tls.certificate}`);
  const twice = other.replace(/@localhost:\d+/, `@${tls.address}:${tls.server.port},${tls.address}:${tls.server.port}`);
  await expect(waitForServer(parseUrl(twice), 0)).rejects.toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
});
