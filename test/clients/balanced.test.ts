import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readDocument } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { needDebian } from './debian.ts';

/** In the name of the Unix socket, as PostgreSQL's clients look for it. */
const PORT = 5432;

/** Two processes of one Postern, behind HAProxy with docker/haproxy.cfg. */
let processes: [TestService, TestService];
let organization: TestOrganization;
let scratch: Scratch;
let haproxy: ChildProcess;
beforeAll(async () => {
  needDebian('haproxy');
  const variables = { ...testVariables(), POSTERN_DRAIN_MS: '15000' };
  processes = [await startTestService(variables), await startTestService(variables)];
  organization = await processes[0].signUp();
  scratch = await makeScratch();
  await chmod(scratch.path, 0o755);
  await mkdir(join(scratch.path, 'doors'));
  const configuration = join(scratch.path, 'haproxy.cfg');
  await writeFile(configuration, onThisMachine(readDocument('docker/haproxy.cfg')));
  haproxy = spawn('/usr/sbin/haproxy', ['-db', '-f', configuration], { stdio: 'ignore' });
  await eventually('HAProxy listens', () => existsSync(wireSocket()) && existsSync(httpSocket()));
});
afterAll(async () => {
  if (haproxy.exitCode === null) {
    haproxy.kill('SIGKILL');
    await once(haproxy, 'close');
  }
  await Promise.all(processes.map((one) => one.close()));
  await scratch.remove();
});

function wireSocket(): string {
  return join(scratch.path, 'doors', `.s.PGSQL.${PORT}`);
}

function httpSocket(): string {
  return join(scratch.path, 'doors', 'http');
}

/** The configuration with fewer files, sockets for the ports of HAProxy, and the ports of these processes for those of the containers. */
function onThisMachine(text: string): string {
  const servers = processes.map(({ wirePort, httpUrl, opsUrl }) => ({ 6432: wirePort, 8080: portOf(httpUrl), ops: portOf(opsUrl) }));
  return text
    .replace('maxconn 20000', 'maxconn 100')
    .replace('bind :6432', `bind unix@${wireSocket()}`)
    .replace('bind :8080', `bind unix@${httpSocket()}`)
    .replace(' port 9464', '')
    .replace(/postern-([12]):(6432|8080)$/gm, (_, number: '1' | '2', port: '6432' | '8080') => {
      const server = servers[number === '1' ? 0 : 1];
      return `127.0.0.1:${server?.[port]} port ${server?.ops}`;
    });
}

function portOf(url: string): number {
  return Number(new URL(url).port);
}

/** @returns the value of `SELECT 1 AS one` */
async function overWire(): Promise<unknown> {
  const { id, apiKey } = organization;
  const client = new pg.Client({ host: join(scratch.path, 'doors'), port: PORT, user: id, database: id, password: apiKey });
  await client.connect();
  try {
    return (await client.query('SELECT 1 AS one')).rows[0].one;
  } finally {
    await client.end();
  }
}

async function overHttp(): Promise<unknown> {
  const headers = { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json' };
  const sent = request({ socketPath: httpSocket(), method: 'POST', path: '/api/query', headers, agent: false });
  sent.end(JSON.stringify({ sql: 'SELECT 1 AS one' }));
  const [reply] = await once(sent, 'response');
  const body = (await json(reply)) as { rows?: { one: unknown }[] };
  return body.rows?.[0]?.one ?? body;
}

it('docker/haproxy.cfg sends clients of both doors to both processes, and loses none when one stops', async () => {
  const each = async () => [await overWire(), await overHttp()];
  await eventually('both processes are known to be ready', async () => (await Promise.all(Array.from({ length: 8 }, each))).length === 8);
  const stopped = processes[1].close();
  let isStopped = false;
  void stopped.then(() => {
    isStopped = true;
  });
  let rounds = 0;
  for (; !isStopped; rounds += 1) expect(await each()).toEqual([1, 1]);
  for (let n = 0; n < 10; n += 1) expect(await each()).toEqual([1, 1]);
  expect(rounds).toBeGreaterThan(0);
});
