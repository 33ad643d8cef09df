import { execFile } from 'node:child_process';
import { createHash, randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { mintKey } from '../../src/router/accounts.ts';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { authenticate, logIn, type ScramOverrides } from '../conversations/login.ts';
import type { Target } from '../conversations/target.ts';
import { WireClient } from '../conversations/wire-client.ts';
import {
  CERTIFICATE,
  CERTIFICATE_KEY,
  OTHER_CERTIFICATE,
  OTHER_CERTIFICATE_KEY,
  UNBOUND_CERTIFICATE,
  UNBOUND_CERTIFICATE_KEY,
} from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { makeInstallation } from '../support/process.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { directTls, recordLengths, requestTls, startImpostor, startWiretap } from '../support/tls.ts';

const ALPN = { ALPNProtocols: ['postgresql'] };
/** What `openssl x509 -outform DER | openssl dgst -sha256` says of CERTIFICATE: its tls-server-end-point data. */
const END_POINT = Buffer.from('9ac368b0324c502df375c25606a3a5ec8b1c7add13c2572f1e70c8aeab708b9f', 'hex');
const OFFER = 'AuthenticationSASL SCRAM-SHA-256-PLUS SCRAM-SHA-256';

const scratch = await makeScratch();
afterAll(() => scratch.remove());

describe('a wire door that wants TLS', () => {
  let files: TlsVariables;
  let postern: TestService;
  let organization: TestOrganization;
  afterEach(() => eventually('no connection is left', () => openConnections(postern) === 0));
  beforeAll(async () => {
    files = await writeFiles('required', CERTIFICATE, CERTIFICATE_KEY);
    // A login may take longer than the test: what is closed has been closed for another reason.
    postern = await startTestService({ ...files, POSTERN_TLS: 'require', POSTERN_LOGIN_TIMEOUT_MS: '600000' });
    organization = await signUp(postern);
  });
  afterAll(() => postern.close());

  const verified = { ca: CERTIFICATE, servername: 'localhost' };

  it.each([
    ['TLS', {}],
    ['channel binding', { enableChannelBinding: true }],
    ['direct TLS and channel binding', { sslnegotiation: 'direct' as const, enableChannelBinding: true }],
  ])('serves pg with %s', async (_with, options) => {
    const client = await postern.connect(organization, { ssl: verified, ...options });
    expect((await client.query('SELECT current_user AS me')).rows).toEqual([{ me: organization.id }]);
    await client.end();
  });

  it.each([{}, { sslnegotiation: 'direct' }])('serves postgres with %o', async (options) => {
    const sql = postern.sql(organization, { ssl: { ...verified, ...ALPN }, ...options });
    expect(await sql`SELECT current_user AS me`).toEqual([{ me: organization.id }]);
    await sql.end();
  });

  describe.runIf(existsSync('/usr/bin/psql'))('psql', () => {
    it.each([
      { PGSSLMODE: 'allow' },
      { PGSSLMODE: 'prefer' },
      { PGSSLMODE: 'require', PGCHANNELBINDING: 'disable' },
      { PGSSLMODE: 'require', PGCHANNELBINDING: 'require' },
      { PGSSLMODE: 'verify-full', PGCHANNELBINDING: 'require' },
    ])('is served with %o', async (settings) => {
      const { stdout } = await psql(postern.wirePort, organization, { ...settings, PGSSLROOTCERT: files.POSTERN_TLS_CERT });
      expect(stdout).toBe(`${organization.id}\n`);
    });

    it('is told what to do when it does without', async () => {
      await expect(psql(postern.wirePort, organization, { PGSSLMODE: 'disable' })).rejects.toMatchObject({
        stderr: expect.stringMatching(
          /FATAL: {2}this server accepts only encrypted connections\nHINT: {2}Connect with sslmode=require\.\n$/,
        ),
      });
    });

    it('that somebody has led to a certificate of his own proves nothing to him that counts here', async () => {
      const impostor = await startImpostor(postern.wirePort, OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY);
      const attempt = psql(impostor.port, organization, { PGSSLMODE: 'require' });
      await expect(attempt).rejects.toMatchObject({ stderr: expect.stringContaining('FATAL:  SCRAM channel binding check failed\n') });
      impostor.close();
    });
  });

  it('answers SSLRequest with one byte, also after GSSENCRequest, and with ALPN or without', async () => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(encodeFrontend('GSSENCRequest'));
    expect(await client.readByte()).toBe('N');
    await client.write(encodeFrontend('SSLRequest'));
    expect(await client.readByte()).toBe('S');
    expect(client.answered).toBe(false);
    client.disconnect();

    const [without, right] = [await requestTls(postern.wirePort), await requestTls(postern.wirePort, ALPN)];
    expect([without.secure.alpnProtocol, right.secure.alpnProtocol]).toEqual([false, 'postgresql']);
    for (const { secure } of [without, right]) {
      const offered = WireClient.over(secure);
      await offered.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
      expect(await next(offered)).toBe(OFFER);
      offered.disconnect();
    }
    await expect(requestTls(postern.wirePort, { ALPNProtocols: ['h2'] })).rejects.toThrow('alert no application protocol');
  });

  it('refuses a plaintext login before it asks for anything', async () => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
    expect(await next(client)).toBe(
      'ErrorResponse FATAL 28000 "this server accepts only encrypted connections" hint="Connect with sslmode=require."',
    );
    await expectEnd(client);
  });

  it('takes nothing for a login that was sent behind SSLRequest in plaintext', async () => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(Buffer.concat([encodeFrontend('SSLRequest'), encodeFrontend(`Startup 3.0 user=${organization.id}`)]));
    expect(await client.readByte()).toBe('S');
    await expectEnd(client);
  });

  it.each([
    ['SSLRequest', '1234.5679'],
    ['GSSENCRequest', '1234.5680'],
  ])('refuses %s inside TLS', async (request, version) => {
    const { secure } = await requestTls(postern.wirePort);
    const client = WireClient.over(secure);
    await client.write(encodeFrontend(request));
    expect(await next(client)).toBe(`ErrorResponse FATAL 0A000 "unsupported frontend protocol ${version}: server supports 3.0 to 3.2"`);
    await expectEnd(client);
  });

  it.each([
    ['is none', (client: WireClient) => client.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'))],
    ['ends in its middle', (client: WireClient) => client.halfClose()],
    ['breaks off', (client: WireClient) => client.reset()],
  ])('closes at once when the TLS handshake %s', async (_how, farewell) => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(encodeFrontend('SSLRequest'));
    expect(await client.readByte()).toBe('S');
    await farewell(client);
    await eventually('the server closes', () => openConnections(postern) === 0);
    client.disconnect();
  });

  describe('with TLS from the first byte', () => {
    it('needs ALPN: closes without a word where there is none, and with an alert where it is for another protocol', async () => {
      const { secure } = await directTls(postern.wirePort);
      await expectEnd(WireClient.over(secure));
      await expect(directTls(postern.wirePort, { ALPNProtocols: ['h2', 'http/1.1'] })).rejects.toThrow('alert no application protocol');
      const several = await directTls(postern.wirePort, { ALPNProtocols: ['h2', 'postgresql'] });
      expect(several.secure.alpnProtocol).toBe('postgresql');
      several.secure.destroy();
    });

    it('answers requests for encryption as Postgres does: not here, but go on', async () => {
      const { secure } = await directTls(postern.wirePort, ALPN);
      const client = WireClient.over(secure);
      for (const request of ['SSLRequest', 'GSSENCRequest']) {
        await client.write(encodeFrontend(request));
        expect(await client.readByte()).toBe('N');
      }
      await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
      expect(await next(client)).toBe(OFFER);
      client.disconnect();
    });

    it('recognizes it when it comes byte by byte, and answers in records of at most 8 KiB', async () => {
      const tap = await startWiretap(postern.wirePort);
      const client = await postern.connect(organization, { port: tap.port, ssl: verified, sslnegotiation: 'direct' });
      const { rows } = await client.query("SELECT repeat('x', 300000) AS long, repeat('y', 100) AS short");
      expect([rows[0].long.length, rows[0].short.length]).toEqual([300_000, 100]);
      await client.end();
      tap.close();
      const lengths = recordLengths(Buffer.concat(tap.answered));
      expect(lengths.length).toBeGreaterThan(300_000 / 8_192);
      // A record's type and tag take 17 bytes (RFC 8446 section 5.2).
      expect(Math.max(...lengths)).toBeLessThanOrEqual(8_192 + 17);
    });
  });

  describe('channel binding', () => {
    const GS2 = 'p=tls-server-end-point,,';
    const bound = { mechanism: 'SCRAM-SHA-256-PLUS', gs2: GS2 };
    const data = (header: string, ...binding: Buffer[]) => Buffer.concat([Buffer.from(header), ...binding]).toString('base64');

    async function attempt(overrides: ScramOverrides, { apiKey }: { readonly apiKey: string } = organization): Promise<string> {
      const { secure } = await requestTls(postern.wirePort);
      const client = WireClient.over(secure);
      await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
      const refused = await authenticate(client, apiKey, overrides);
      client.disconnect();
      return refused === undefined ? 'welcome' : describeBackend(refused);
    }

    it('is by the hash of the certificate', async () => {
      expect(createHash('sha256').update(new X509Certificate(CERTIFICATE).raw).digest()).toEqual(END_POINT);
      expect(await attempt({ ...bound, c: data(GS2, END_POINT) })).toBe('welcome');
    });

    it('proves each of several keys, and is told when one has ended', async () => {
      const { catalog } = postern.service.router;
      const known = await catalog.findByOrganization(organization.id);
      const change = {
        organizationId: organization.id,
        actorKeyId: known?.live[0]?.key.id ?? '',
        origin: { surface: 'http', sourceIp: '127.0.0.1' },
      } as const;
      const details = { name: 'one of several', scope: 'write', expiresAt: null, networks: null } as const;
      const made = await Promise.all([1, 2, 3].map(() => mintKey(known?.salt)));
      for (const { record } of made) await catalog.keys.create(change, record, details);
      const logIns = () => Promise.all([organization, ...made].map((key) => attempt({ ...bound, c: data(GS2, END_POINT) }, key)));
      expect(await logIns()).toEqual(Array(4).fill('welcome'));
      await catalog.keys.revoke(change, made[1]?.record.id ?? '');
      expect(await logIns()).toEqual([
        'welcome',
        'welcome',
        expect.stringMatching(/^ErrorResponse FATAL 28P01 "this API key was revoked at /),
        'welcome',
      ]);
      expect(await attempt({ ...bound, c: data(GS2, END_POINT) }, await mintKey(known?.salt))).toContain('28P01 "password authentication');
    });

    it('must be to this certificate', async () => {
      const refusal = 'ErrorResponse FATAL 28000 "SCRAM channel binding check failed"';
      expect(await attempt({ ...bound, c: data(GS2, randomBytes(32)) })).toBe(refusal);
      expect(await attempt({ ...bound, c: data(GS2) })).toBe(refusal);
      expect(await attempt({ ...bound, c: data('n,,') })).toBe(refusal);
    });

    it('can be done without, but not because the offer was lost on the way', async () => {
      expect(await attempt({ gs2: 'n,,' })).toBe('welcome');
      expect(await attempt({ gs2: 'y,,' })).toBe(
        'ErrorResponse FATAL 28000 "SCRAM channel binding negotiation error" detail="The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding."',
      );
    });

    it('cannot be claimed for a mechanism without it, nor left out of the one with it', async () => {
      expect(await attempt({ gs2: GS2, c: data(GS2, END_POINT) })).toContain('FATAL 08P01 "malformed SCRAM message"');
      expect(await attempt({ ...bound, gs2: 'n,,' })).toContain('FATAL 08P01 "malformed SCRAM message"');
    });
  });

  it.each(['in plaintext', 'over TLS', 'over direct TLS'])('cancels %s', async (how) => {
    const client = WireClient.over((await requestTls(postern.wirePort)).secure);
    await logIn(client, targetOf(postern, organization), '3.2', new Map());
    const watcher = await postern.connect(organization, { ssl: verified });
    await client.write(encodeFrontend(`Query SELECT FROM (${LANDMARK}) AS passed, pg_sleep(20)`));
    // A cancel request that comes before its statement has begun is lost.
    await landmarkPassed(watcher);
    const request = encodeFrontend(`CancelRequest ${client.processId} ${client.secretKey.toString('hex')}`);
    const canceller = await openFor(how, postern.wirePort);
    await canceller.write(request);
    await expectEnd(canceller);
    const answers: string[] = [];
    while (answers.at(-1) !== 'ReadyForQuery I') answers.push(await next(client));
    expect(answers).toContain('ErrorResponse ERROR 57014 "canceling statement due to user request"');
    client.disconnect();
    await watcher.end();
  });

  it.each([
    ['a FIN without close_notify', 'end'],
    ['an RST', 'resetAndDestroy'],
    ['what is no TLS record', 'garbage'],
  ] as const)('takes %s for the end of the session', async (_what, how) => {
    const before = postern.observations.length;
    const { secure, plain } = await requestTls(postern.wirePort);
    await logIn(WireClient.over(secure), targetOf(postern, organization), '3.0', new Map());
    if (how === 'garbage') plain.write('this is no TLS record, and so there can be no further one');
    else plain[how]();
    await eventually('the connection closes', () => openConnections(postern) === 0);
    const since = postern.observations.slice(before);
    expect(since.find(({ name }) => name === 'wire.session.closed')).toMatchObject({ reason: 'client_gone' });
    expect(since.filter(({ name }) => name === 'service.warning' || name === 'service.failure')).toEqual([]);
    plain.destroy();
  });
});

describe('a wire door with an Ed25519 certificate', () => {
  let postern: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    postern = await startTestService(await writeFiles('unbound', UNBOUND_CERTIFICATE, UNBOUND_CERTIFICATE_KEY));
    organization = await signUp(postern);
  });
  afterAll(() => postern.close());

  it('offers no channel binding, which has no meaning for it, so that clients that can do with either log in', async () => {
    const client = WireClient.over((await requestTls(postern.wirePort)).secure);
    await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
    expect(await next(client)).toBe('AuthenticationSASL SCRAM-SHA-256');
    client.disconnect();
    const bindable = await postern.connect(organization, { ssl: { rejectUnauthorized: false }, enableChannelBinding: true });
    await bindable.end();
  });

  it.runIf(existsSync('/usr/bin/psql'))('lets psql decide whether that will do', async () => {
    const { stdout } = await psql(postern.wirePort, organization, { PGSSLMODE: 'require' });
    expect(stdout).toBe(`${organization.id}\n`);
    await expect(psql(postern.wirePort, organization, { PGSSLMODE: 'require', PGCHANNELBINDING: 'require' })).rejects.toMatchObject({
      stderr: expect.stringContaining('channel binding is required, but server did not offer an authentication method that supports'),
    });
  });
});

describe.each([
  ['has no certificate', async () => ({})],
  ['has one that it is not to use', async () => ({ ...(await writeFiles('off', CERTIFICATE, CERTIFICATE_KEY)), POSTERN_TLS: 'off' })],
])('a wire door that %s', (_what, variables) => {
  let postern: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    postern = await startTestService(await variables());
    organization = await signUp(postern);
  });
  afterAll(() => postern.close());

  it('answers requests for encryption with N, each once, and goes on in plaintext', async () => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    for (const request of ['SSLRequest', 'GSSENCRequest']) {
      await client.write(encodeFrontend(request));
      expect(await client.readByte()).toBe('N');
    }
    await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
    expect(await next(client)).toBe('AuthenticationSASL SCRAM-SHA-256');
    client.disconnect();
  });

  it.each([
    ['SSLRequest', '1234.5679'],
    ['GSSENCRequest', '1234.5680'],
  ])('refuses a second %s', async (request, version) => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(encodeFrontend(request));
    expect(await client.readByte()).toBe('N');
    await client.write(encodeFrontend(request));
    expect(await next(client)).toBe(`ErrorResponse FATAL 0A000 "unsupported frontend protocol ${version}: server supports 3.0 to 3.2"`);
    await expectEnd(client);
  });

  it.each([
    ['SSLRequest', 'SSL'],
    ['GSSENCRequest', 'GSSAPI encryption'],
  ])('refuses what was sent behind %s before its answer', async (request, what) => {
    const client = await WireClient.open('127.0.0.1', postern.wirePort);
    await client.write(Buffer.concat([encodeFrontend(request), encodeFrontend(`Startup 3.0 user=${organization.id}`)]));
    expect(await client.readByte()).toBe('N');
    expect(await next(client)).toBe(
      `ErrorResponse FATAL 08P01 "received unencrypted data after ${what} request" detail="This could be either a client-software bug or evidence of an attempted man-in-the-middle attack."`,
    );
    await expectEnd(client);
  });

  it('closes when TLS begins unasked', async () => {
    await expect(directTls(postern.wirePort, ALPN)).rejects.toMatchObject({ code: 'ECONNRESET' });
  });
});

describe('a new certificate', () => {
  let files: TlsVariables;
  let postern: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    files = await writeFiles('reloaded', CERTIFICATE, CERTIFICATE_KEY);
    postern = await startTestService(files);
    organization = await signUp(postern);
  });
  afterAll(() => postern.close());

  it('is shown to those who come, at both doors, and leaves those alone who are here', async () => {
    const [before, halfway] = [
      await postern.connect(organization, { ssl: { ca: CERTIFICATE, servername: 'localhost' } }),
      await requestTls(postern.wirePort),
    ];
    await writeFiles('reloaded', OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY);
    postern.service.reload();

    expect(await fingerprints(postern)).toEqual([fingerprint(OTHER_CERTIFICATE), fingerprint(OTHER_CERTIFICATE)]);
    const after = await postern.connect(organization, {
      ssl: { ca: OTHER_CERTIFICATE, servername: 'localhost' },
      enableChannelBinding: true,
    });
    for (const client of [before, after]) {
      expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
      await client.end();
    }
    // A login that began under the old certificate is bound to the old one.
    const client = WireClient.over(halfway.secure);
    await client.write(encodeFrontend(`Startup 3.0 user=${organization.id}`));
    const gs2 = 'p=tls-server-end-point,,';
    const c = Buffer.concat([Buffer.from(gs2), END_POINT]).toString('base64');
    expect(await authenticate(client, organization.apiKey, { mechanism: 'SCRAM-SHA-256-PLUS', gs2, c })).toBeUndefined();
    client.disconnect();
  });

  it.each([
    [
      'that is cut off',
      OTHER_CERTIFICATE.slice(0, 300),
      OTHER_CERTIFICATE_KEY,
      /^POSTERN_TLS_CERT: .*reloaded\.crt is no PEM certificate: /,
    ],
    ['whose key is empty', OTHER_CERTIFICATE, '', /^POSTERN_TLS_KEY: .*reloaded\.key is no unencrypted PEM private key: /],
    [
      'with the key of another',
      OTHER_CERTIFICATE,
      CERTIFICATE_KEY,
      /^POSTERN_TLS_KEY: is not the key of the certificate in POSTERN_TLS_CERT$/,
    ],
  ])('%s is not used, and somebody is told', async (_what, cert, key, message) => {
    const shown = await fingerprints(postern);
    await writeFiles('reloaded', cert, key);
    postern.service.reload();
    expect(await fingerprints(postern)).toEqual(shown);
    const warning = postern.observations.findLast(({ name }) => name === 'service.warning');
    expect(warning).toMatchObject({
      message: 'the TLS certificate could not be reloaded, the old one stays in use',
      cause: expect.objectContaining({ message: expect.stringMatching(message) }),
    });
    await expect(startTestService(files)).rejects.toThrow(message);
  });

  it('is read on SIGHUP', async () => {
    const variables = await writeFiles('signalled', CERTIFICATE, CERTIFICATE_KEY);
    const installation = await makeInstallation();
    onTestFinished(() => installation.remove());
    const { pid, wirePort, end } = await installation.start({ ...testVariables(), ...variables });
    expect(await fingerprintAt(wirePort, ALPN)).toBe(fingerprint(CERTIFICATE));
    await writeFiles('signalled', OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY);
    process.kill(pid, 'SIGHUP');
    await eventually('the new certificate is shown', async () => (await fingerprintAt(wirePort, ALPN)) === fingerprint(OTHER_CERTIFICATE));
    expect(await end('SIGTERM')).toMatchObject({ code: 0 });
  });
});

interface TlsVariables extends Record<string, string> {
  readonly POSTERN_TLS_CERT: string;
  readonly POSTERN_TLS_KEY: string;
}

async function writeFiles(name: string, cert: string, key: string): Promise<TlsVariables> {
  const paths = { POSTERN_TLS_CERT: join(scratch.path, `${name}.crt`), POSTERN_TLS_KEY: join(scratch.path, `${name}.key`) };
  await writeFile(paths.POSTERN_TLS_CERT, cert);
  await writeFile(paths.POSTERN_TLS_KEY, key);
  return paths;
}

function openConnections({ observations }: TestService): number {
  const count = (wanted: string) => observations.filter(({ name }) => name === wanted).length;
  return count('wire.connected') - count('wire.disconnected');
}

/** Not over HTTP, which wants TLS here too. */
async function signUp({ service }: TestService): Promise<TestOrganization> {
  const request = { orgName: 'Acme', email: `${randomBytes(6).toString('hex')}@acme.test` };
  const { organization, apiKey } = await service.signUps.create(request, { surface: 'http', sourceIp: '127.0.0.1' });
  return { id: organization.id, apiKey, ...request };
}

function psql(port: number, { id, apiKey }: TestOrganization, settings: Readonly<Record<string, string>>) {
  const login = { PGHOST: 'localhost', PGHOSTADDR: '127.0.0.1', PGPORT: String(port), PGUSER: id, PGDATABASE: id, PGPASSWORD: apiKey };
  return promisify(execFile)('psql', ['-XAt', '-c', 'SELECT current_user'], { env: { PATH: process.env.PATH, ...login, ...settings } });
}

/** The end must be next; @returns after closing our side too */
async function expectEnd(client: WireClient): Promise<void> {
  expect(await next(client)).toBe('EOF');
  client.disconnect();
}

/** The next message as conversations write it, or `EOF`. */
async function next(client: WireClient): Promise<string> {
  const message = await client.read();
  return typeof message === 'object' ? describeBackend(message) : String(message);
}

function targetOf({ wirePort }: TestService, { id, apiKey }: TestOrganization): Target {
  return {
    kind: 'postern',
    host: '127.0.0.1',
    port: wirePort,
    user: id,
    database: id,
    password: apiKey,
    version: 18,
    placement: 'database',
    backends: 1,
  };
}

async function openFor(how: string, port: number): Promise<WireClient> {
  if (how === 'in plaintext') return WireClient.open('127.0.0.1', port);
  return WireClient.over((await (how === 'over TLS' ? requestTls(port) : directTls(port, ALPN))).secure);
}

function fingerprint(certificate: string): string {
  return new X509Certificate(certificate).fingerprint256;
}

/** Of the certificates that the wire door and the HTTP door show. */
function fingerprints({ wirePort, service }: TestService): Promise<string[]> {
  return Promise.all([fingerprintAt(wirePort, ALPN), fingerprintAt(service.httpPort, {})]);
}

async function fingerprintAt(port: number, options: ConnectionOptions): Promise<string> {
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ...options });
  await once(socket, 'secureConnect');
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}
