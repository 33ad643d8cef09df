import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseUrl, waitForServer } from '../../src/placement/admin-connection.ts';
import { PLACEMENTS, startTestService } from '../support/service.ts';
import { needDebian } from './debian.ts';
import { startTlsServer } from './moves/tls-server.ts';
import { TwoServers } from './moves/two-servers.ts';

let tls: Awaited<ReturnType<typeof startTlsServer>>;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
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

describe('with a URL of two hosts, the first of which is not used', () => {
  const url = () => urlOfBoth(`target_session_attrs=read-write&sslmode=verify-full&sslrootcert=${tls.certificate}`);
  const TABLE = ['CREATE TABLE notes (n int PRIMARY KEY)', 'INSERT INTO notes SELECT generate_series(1, 10)'];
  const COUNT = 'SELECT count(*)::int FROM notes';

  it('clones are made, with pg_dump too', async () => {
    for (const POSTERN_PLACEMENT of PLACEMENTS) {
      const service = await startTestService({ DATABASE_URL: url(), POSTERN_PLACEMENT });
      const organization = await service.signUp();
      for (const sql of TABLE) expect((await service.query(organization, sql)).status).toBe(200);
      const { status, body } = await service.call('POST', '/api/clones', { key: organization.apiKey, body: {} });
      expect({ status, body }).toMatchObject({ status: 201 });
      expect((await service.query({ ...organization, apiKey: body.apiKey }, COUNT)).body.rows).toEqual([{ count: 10 }]);
      await service.close();
    }
  });

  it('organizations are moved to another server, by pg_dump or by replication', async () => {
    const servers = await TwoServers.start(tls.server, url());
    for (const way of [[], ['--replicate']]) {
      const organization = await servers.services[0].signUp();
      for (const sql of TABLE) expect((await servers.services[0].query(organization, sql)).status).toBe(200);
      const moved = await servers.admin('org', 'move', organization.id, '--to', 'other', ...way);
      expect(moved).toMatchObject({ code: 0, stderr: '' });
      expect(await servers.clusterOf(organization)).toBe('other');
      expect((await servers.services[1].query(organization, COUNT)).body.rows).toEqual([{ count: 10 }]);
      expect(await servers.leftovers(organization)).toEqual([]);
    }
    await servers.stop();
  });
});
