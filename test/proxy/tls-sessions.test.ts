import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { queryMessage } from '../support/raw-session.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { requestTls, startSaboteur } from '../support/tls.ts';

const scratch = await makeScratch();
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  const files = { POSTERN_TLS_CERT: join(scratch.path, 'tls.crt'), POSTERN_TLS_KEY: join(scratch.path, 'tls.key') };
  await writeFile(files.POSTERN_TLS_CERT, CERTIFICATE);
  await writeFile(files.POSTERN_TLS_KEY, CERTIFICATE_KEY);
  service = await startTestService(files);
  const { organization: made, apiKey } = await service.service.signUps.create(
    { orgName: 'Acme', email: 'tls-sessions@acme.test' },
    { surface: 'http', sourceIp: '127.0.0.1' },
  );
  organization = { id: made.id, apiKey, orgName: 'Acme', email: 'tls-sessions@acme.test' };
});
afterAll(async () => {
  await service.close();
  await scratch.remove();
});

const ALERT = 21;

async function openTlsSession(port: number, options: Parameters<typeof requestTls>[1] = {}) {
  const { secure, plain } = await requestTls(port, options);
  const client = WireClient.over(secure);
  await logIn(client, { user: organization.id, database: organization.id, password: organization.apiKey }, '3.0', new Map());
  return { client, secure, plain };
}

/** Reads up to the next ReadyForQuery. @returns how often each type of message came */
async function readReply(client: WireClient): Promise<string> {
  let types = '';
  while (!types.endsWith('Z')) {
    const message = await client.read();
    if (typeof message !== 'object') throw new Error(`${message} after ${types}`);
    types += message.type;
  }
  return types;
}

it('whoever the client thinks it is calling, it is shown the one certificate (T12)', async () => {
  for (const servername of ['org_000000000000.example', 'localhost', 'a'.repeat(60)]) {
    const { client, secure } = await openTlsSession(service.wirePort, { servername });
    expect(secure.getPeerX509Certificate()?.fingerprint256).toBe(new X509Certificate(CERTIFICATE).fingerprint256);
    client.disconnect();
  }
});

it.each(['TLSv1.2', 'TLSv1.3'] as const)('a fatal alert of %s ends the session, and frees what it held (T14)', async (version) => {
  const saboteur = await startSaboteur(service.wirePort);
  const { client } = await openTlsSession(saboteur.port, { minVersion: version, maxVersion: version });
  const watcher = await service.connect(organization, { ssl: { rejectUnauthorized: false } });
  await watcher.query('CREATE TABLE IF NOT EXISTS held (i int)');
  await client.write(queryMessage('BEGIN; LOCK TABLE held'));
  await readReply(client);
  const closed = () => service.observations.filter(({ name }) => name === 'wire.session.closed');
  const before = closed().length;
  saboteur.spoil = true;
  await client.write(queryMessage('SELECT 1'));
  await eventually('the session is closed', () => closed().length > before);
  expect(closed().at(-1)).toMatchObject({ reason: 'client_gone' });
  // The query, and then the alert, which TLS 1.3 makes look like any other record.
  const last = saboteur.saidSince.at(-1)?.readUInt8(0);
  expect(last).toBe(version === 'TLSv1.2' ? ALERT : 23);
  await watcher.query("SET lock_timeout = '60s'; LOCK TABLE held");
  await watcher.end();
  saboteur.close();
});

it('a client that writes all it has before it reads anything is served in the end (T17)', async () => {
  const { client } = await openTlsSession(service.wirePort);
  client.pause();
  const requests = 300;
  const query = queryMessage(`SELECT repeat('x', 50000) /* ${'y'.repeat(20_000)} */`);
  const written = client.write(Buffer.concat(Array<Buffer>(requests).fill(query)));
  const other = await service.connect(organization, { ssl: { rejectUnauthorized: false } });
  expect((await other.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await other.end();
  client.resume();
  for (let n = 0; n < requests; n += 1) expect(await readReply(client)).toBe('TDCZ');
  await written;
  client.disconnect();
});

it.runIf(existsSync('/usr/bin/openssl'))(
  'a client that changes its keys in the middle, and asks the server to, is understood (T17)',
  async () => {
    const openssl = spawn('openssl', ['s_client', '-starttls', 'postgres', '-tls1_3', '-connect', `127.0.0.1:${service.wirePort}`]);
    let told = '';
    for (const output of [openssl.stdout, openssl.stderr]) {
      output.on('data', (chunk: Buffer) => {
        told += chunk.toString('latin1');
      });
    }
    openssl.stdin.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
    await eventually('it is asked for its key', () => told.includes('SCRAM-SHA-256'));
    // s_client's own command for KeyUpdate (RFC 8446 section 4.6.3).
    openssl.stdin.write('K\n');
    await eventually('it has changed them', () => told.includes('KEYUPDATE'));
    openssl.stdin.write(encodeFrontend('SASLInitialResponse NONSENSE x'));
    await eventually('it has been answered', () => told.includes('client selected an invalid SASL authentication mechanism'));
    openssl.kill();
  },
);
