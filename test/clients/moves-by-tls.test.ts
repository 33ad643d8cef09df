import { readdir, readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CERTIFICATE, CERTIFICATE_KEY, UNBOUND_CERTIFICATE, UNBOUND_CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import type { TestOrganization } from '../support/service.ts';
import { needDebian } from './debian.ts';
import { type Destination, startTlsServer, type TlsServer } from './moves/tls-server.ts';
import { TwoServers } from './moves/two-servers.ts';

let former: TlsServer & { stop(): Promise<void> };
let servers: TwoServers;
let verified: string;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  former = await startTlsServer();
  verified = former.url(`sslmode=verify-full&sslrootcert=${former.certificate}`);
  servers = await TwoServers.start(former.server, verified);
});
afterEach(async () => {
  former.route = toServer;
  await servers.endMovers();
});
afterAll(async () => {
  await servers.stop();
  await former.stop();
});

const toServer = (): Destination => 'server';
/** libpq since version 17, that of the new server, names its protocol in the handshake; pg_dump 15 and the driver do not. */
const isSubscriber = (hello: Buffer) => hello.includes('postgresql');
/** The environment in which pg_dump does not name the server in the handshake, as the driver does. */
const UNNAMED = { PGSSLSNI: '0' };
const isUnnamed = (hello: Buffer) => !hello.includes('localhost');

/** Brings some clients to somebody who is not the server. */
function fool(isFooled: (hello: Buffer) => boolean, by: Destination): void {
  former.route = (hello) => (isFooled(hello) ? by : 'server');
}

async function makeOrganization(): Promise<TestOrganization> {
  const acme = await servers.services[0].signUp();
  for (const sql of ['CREATE TABLE notes (n int PRIMARY KEY)', 'INSERT INTO notes SELECT generate_series(1, 10)'])
    expect((await servers.services[0].query(acme, sql)).status).toBe(200);
  return acme;
}

const count = async (acme: TestOrganization) => (await servers.services[0].query(acme, 'SELECT count(*)::int FROM notes')).body.rows;

const move = (acme: TestOrganization, variables: Readonly<Record<string, string>> = {}, ...words: string[]) =>
  servers.adminWith(variables, 'org', 'move', acme.id, '--to', 'other', ...words);

/** The organization is where it was, and nothing of the move is left. */
async function expectUnmoved(acme: TestOrganization): Promise<void> {
  expect([await servers.clusterOf(acme), await servers.leftovers(acme), await count(acme)]).toEqual(['default', [], [{ count: 10 }]]);
}

/** Of all processes that this one may see. */
async function commandLines(): Promise<string> {
  const processes = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return (await Promise.all(processes.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')))).join('\n');
}

describe('a move from a server whose URL has its certificate checked', () => {
  it('has pg_dump check it', async () => {
    const acme = await makeOrganization();
    fool(isUnnamed, 'thief');
    expect(await move(acme, UNNAMED)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^postern: pg_dump has failed: .*certificate verify failed/),
    });
    await expectUnmoved(acme);
    expect(former.stolen).toEqual([]);
    former.route = toServer;
    expect(await move(acme, UNNAMED)).toMatchObject({ code: 0, stderr: '' });
    expect([await servers.clusterOf(acme), await count(acme)]).toEqual(['other', [{ count: 10 }]]);
  });

  it('has pg_dump trust whom Node trusts, if the URL names no file', async () => {
    const acme = await makeOrganization();
    const url = former.url('sslmode=verify-full');
    expect(await move(acme, { DATABASE_URL: url })).toMatchObject({ code: 1, stderr: expect.stringContaining('self-signed certificate') });
    for (const parameters of ['sslmode=verify-full', 'sslrootcert=system']) {
      const trusting = { ...UNNAMED, DATABASE_URL: former.url(parameters), NODE_EXTRA_CA_CERTS: former.certificate };
      fool(isUnnamed, 'thief');
      expect(await move(acme, trusting)).toMatchObject({ code: 1, stderr: expect.stringContaining('certificate verify failed') });
      await expectUnmoved(acme);
      former.route = toServer;
    }
    expect(former.stolen).toEqual([]);
    expect(await move(acme, { DATABASE_URL: url, NODE_EXTRA_CA_CERTS: former.certificate })).toMatchObject({ code: 0, stderr: '' });
  });

  it('has the new server be sure who publishes', async () => {
    const acme = await makeOrganization();
    for (const [other, reason] of [
      ['impostor', 'SCRAM channel binding check failed'],
      ['thief', 'channel binding required'],
    ] as const) {
      fool(isSubscriber, other);
      expect(await move(acme, {}, '--replicate')).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(new RegExp(`^postern: it cannot be replicated: the other server cannot subscribe: .*${reason}`)),
      });
      await expectUnmoved(acme);
    }
    expect(former.stolen).toEqual([]);
    former.route = toServer;
    expect(await move(acme, {}, '--replicate')).toMatchObject({ code: 0, stderr: '' });
    expect([await servers.clusterOf(acme), await servers.leftovers(acme)]).toEqual(['other', []]);
  });

  it('is not replicated if no login can be bound to the certificate', async () => {
    const acme = await makeOrganization();
    const trusted = await former.present(UNBOUND_CERTIFICATE, UNBOUND_CERTIFICATE_KEY);
    try {
      const url = former.url(`sslmode=verify-full&sslrootcert=${trusted}`);
      expect(await move(acme, { DATABASE_URL: url }, '--replicate')).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^postern: it cannot be replicated: .*could not find digest for NID UNDEF/),
      });
    } finally {
      await former.present(CERTIFICATE, CERTIFICATE_KEY);
    }
  });

  it('shows the password of the replication to nobody', async () => {
    const acme = await makeOrganization();
    await servers.setCopying(false);
    const { ended } = servers.startMover(acme);
    await servers.published(acme);
    const [found] = await servers.look('target', 'SELECT subconninfo AS text FROM pg_subscription', [], acme.id);
    const password = /password='([^']+)'/.exec(String(found?.text))?.[1] ?? '';
    expect(password.length).toBeGreaterThan(40);
    expect(found?.text).toContain("channel_binding='require'");
    const connected = `SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename LIKE 'postern\\_move\\_%'`;
    await expect.poll(() => servers.look('source', connected)).toEqual([{ ssl: true }]);
    expect(await commandLines()).not.toContain(password);
    const asTenant = await servers.superuser('target', acme.id);
    await asTenant.query(`SET SESSION AUTHORIZATION ${acme.id}`);
    await expect(asTenant.query('SELECT subconninfo FROM pg_subscription')).rejects.toMatchObject({ code: '42501' });
    await asTenant.end();
    await servers.setCopying(true);
    expect(await ended).toEqual({ code: 0, stderr: '' });
    await eventually('nothing is left', async () => (await servers.leftovers(acme)).length === 0);
  });
});
