import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, writeFile } from 'node:fs/promises';
import { type RequestOptions, request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import { createServer, type Server, Socket } from 'node:net';
import { join } from 'node:path';
import { json, text } from 'node:stream/consumers';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { portOf } from '../../src/ports.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { needDebian } from './debian.ts';

/** HAProxy's address, and a client's. */
const [PROXY, CLIENT] = ['127.0.0.2', '127.0.0.7'];
/** How HAProxy announces clients. */
const WAYS = ['send-proxy', 'send-proxy-v2', 'send-proxy-v2 proxy-v2-options crc32c,ssl,cert-cn,unique-id'] as const;

const FIRST_FILE = 3;

const scratch = await makeScratch();
afterAll(() => scratch.remove());

describe.each(['plain', 'TLS'])('behind HAProxy, %s', (kind) => {
  const isTls = kind === 'TLS';
  let service: TestService;
  let organization: { readonly id: string; readonly apiKey: string };
  let haproxy: ChildProcess;
  /** Of each way, those of both doors, and one whose health checks tell. */
  let ports: readonly { readonly wire: number; readonly http: number }[];
  let stats: number;
  beforeAll(async () => {
    needDebian('haproxy');
    const [cert, key] = [join(scratch.path, 'cert.pem'), join(scratch.path, 'key.pem')];
    await Promise.all([writeFile(cert, CERTIFICATE), writeFile(key, CERTIFICATE_KEY), chmod(scratch.path, 0o755)]);
    const tls = { POSTERN_TLS_CERT: cert, POSTERN_TLS_KEY: key, POSTERN_TLS: 'require' };
    service = await startTestService({ POSTERN_PROXY_PROTOCOL_FROM: PROXY, ...(isTls ? tls : {}) });
    organization = await signUp(service);
    const inherited = await listeners(2 * WAYS.length + 1);
    const bound = inherited.map(portOf);
    ports = WAYS.map((_, index) => ({ wire: bound[2 * index] ?? 0, http: bound[2 * index + 1] ?? 0 }));
    stats = bound.at(-1) ?? 0;
    const configuration = join(scratch.path, `${kind}.cfg`);
    await writeFile(configuration, configurationFor(service));
    haproxy = spawn('/usr/sbin/haproxy', ['-db', '-f', configuration], {
      stdio: ['ignore', 'ignore', 'inherit', ...inherited.map(fileOf)],
    });
    for (const server of inherited) server.close();
  });
  afterAll(async () => {
    if (haproxy.exitCode === null) {
      haproxy.kill('SIGKILL');
      await once(haproxy, 'close');
    }
    await service.close();
  });

  it('has healthy servers, whose checks are no refused headers', async () => {
    const states = async () => (await text(await get({ port: stats, path: '/;csv' }))).split('\n').flatMap(stateOf);
    await eventually(
      'both doors are up',
      async () =>
        (await states().catch(() => [])).join() ===
        Array(2 * WAYS.length)
          .fill('UP')
          .join(),
    );
    expect(service.observations.filter(({ name }) => name === 'proxy_header.refused')).toEqual([]);
  });

  it.each(WAYS.map((way, index) => [way, index] as const))('%s: both doors know the client', async (_way, index) => {
    const port = ports[index];
    if (port === undefined) throw new Error('there is no such way');
    const from = service.observations.length;
    const { id, apiKey } = organization;
    const ssl = isTls ? { ca: CERTIFICATE, servername: 'localhost' } : false;
    const client = new pg.Client({
      host: '127.0.0.1',
      port: port.wire,
      user: id,
      database: id,
      password: apiKey,
      ssl,
      stream: () => new FromClient(),
    });
    await client.connect();
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);

    const send = isTls ? requestTls : requestPlain;
    const call = async (method: string, path: string, body = '') => {
      const headers = { authorization: `Bearer ${apiKey}`, ...(body === '' ? {} : { 'content-type': 'application/json' }) };
      const at = { host: '127.0.0.1', port: port.http, localAddress: CLIENT, ca: CERTIFICATE, servername: 'localhost' };
      const [reply] = await once(send({ ...at, method, path, headers, agent: false }).end(body), 'response');
      return { status: reply.statusCode, body: await json(reply) };
    };
    expect(await call('POST', '/api/query', '{"sql":"SELECT 1 AS one"}')).toMatchObject({ status: 200, body: { rows: [{ one: 1 }] } });
    expect(await call('GET', '/api/sessions')).toMatchObject({
      status: 200,
      body: { sessions: [{ sourceIp: CLIENT }, { sourceIp: CLIENT }] },
    });
    await client.end();

    await eventually('all is known', () => sources(service, from).length === 3);
    expect(sources(service, from)).toEqual([CLIENT, CLIENT, CLIENT]);
  });
});

/** The addresses of logins and requests. */
function sources({ observations }: TestService, from: number): string[] {
  return observations
    .slice(from)
    .flatMap((one) => (one.name === 'login.succeeded' || one.name === 'http.request' ? [one.origin.sourceIp] : []));
}

class FromClient extends Socket {
  override connect(...[port, host]: unknown[]): this {
    return super.connect({ port: Number(port), host: String(host), localAddress: CLIENT });
  }
}

async function get(at: RequestOptions) {
  const [reply] = await once(requestPlain({ host: '127.0.0.1', agent: false, ...at }).end(), 'response');
  return reply;
}

/** Its 18th column, of servers. */
function stateOf(line: string): string[] {
  const columns = line.split(',');
  return columns[1] === 'postern' ? [columns[17] ?? ''] : [];
}

/** Listening sockets that HAProxy inherits, so that nobody else takes their ports. */
async function listeners(count: number): Promise<Server[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  return servers;
}

function fileOf(server: Server): number {
  return Reflect.get(Reflect.get(server, '_handle'), 'fd');
}

function configurationFor({ wirePort, httpUrl }: TestService): string {
  const check = 'check inter 100ms rise 1 fall 1 check-send-proxy';
  const sections = WAYS.flatMap((way) =>
    [wirePort, new URL(httpUrl).port].map((port) => `server postern 127.0.0.1:${port} source ${PROXY} ${way} ${check}`),
  );
  const lines = sections.flatMap((server, index) => [
    `listen way-${index}`,
    `  bind fd@${FIRST_FILE + index}`,
    '  unique-id-format %[uuid()]',
    `  ${server}`,
  ]);
  return `
defaults
  mode tcp
  timeout connect 30s
  timeout client 5m
  timeout server 5m
${lines.join('\n')}
listen stats
  bind fd@${FIRST_FILE + sections.length}
  mode http
  stats enable
  stats uri /
`;
}

async function signUp({ service }: TestService): Promise<{ readonly id: string; readonly apiKey: string }> {
  const request = { orgName: 'Acme', email: `${randomBytes(6).toString('hex')}@acme.test` };
  const { organization, apiKey } = await service.signUps.create(request, { surface: 'http', sourceIp: '127.0.0.1' });
  return { id: organization.id, apiKey };
}
