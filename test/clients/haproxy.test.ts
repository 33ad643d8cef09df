import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { untilServerRuns } from '../support/running.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { libpqEnvironment, needDebian } from './debian.ts';

const ALGORITHMS = ['roundrobin', 'leastconn', 'random'] as const;
/** In the name of the Unix socket, as PostgreSQL's clients look for it. */
const PORT = 5432;
const TIMES = 20;

/** Two processes of one Postern, behind HAProxy. */
let processes: [TestService, TestService];
let organization: TestOrganization;
let scratch: Scratch;
let haproxy: ChildProcess;
beforeAll(async () => {
  needDebian('haproxy', 'postgresql-client-15');
  const variables = testVariables();
  processes = [await startTestService(variables), await startTestService(variables)];
  organization = await processes[0].signUp();
  scratch = await makeScratch();
  await chmod(scratch.path, 0o755);
  for (const algorithm of ALGORITHMS) await mkdir(join(scratch.path, algorithm));
  const servers = processes.map(({ wirePort }, at) => `  server postern${at} 127.0.0.1:${wirePort}\n`).join('');
  const proxies = ALGORITHMS.map(
    (algorithm) => `listen ${algorithm}\n  bind unix@${socketOf(algorithm)}\n  balance ${algorithm}\n${servers}`,
  );
  const timeouts = 'timeout connect 5s\n  timeout client 120s\n  timeout server 120s';
  const configuration = join(scratch.path, 'haproxy.cfg');
  await writeFile(configuration, `defaults\n  mode tcp\n  ${timeouts}\n${proxies.join('')}`);
  haproxy = spawn('/usr/sbin/haproxy', ['-db', '-f', configuration], { stdio: 'ignore' });
  await eventually('HAProxy listens', async () => ALGORITHMS.every((algorithm) => existsSync(socketOf(algorithm))));
});
afterAll(async () => {
  haproxy.kill('SIGKILL');
  await once(haproxy, 'close');
  await Promise.all(processes.map((one) => one.close()));
  await scratch.remove();
});

function socketOf(algorithm: string): string {
  return join(scratch.path, algorithm, `.s.PGSQL.${PORT}`);
}

function psql(algorithm: string, sql: string): ChildProcess {
  const environment = libpqEnvironment(processes[0], organization);
  return spawn('psql', ['-X', '-c', sql], {
    env: { ...environment, PGHOST: join(scratch.path, algorithm), PGPORT: String(PORT) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

describe.each(ALGORITHMS)('behind HAProxy with balance %s', (algorithm) => {
  it(`Ctrl-C in psql cancels its statement, ${TIMES} of ${TIMES}`, async () => {
    const tookMs: number[] = [];
    for (let n = 0; n < TIMES; n += 1) {
      const sql = `SELECT pg_sleep(60), '${algorithm} ${n}'`;
      const client = psql(algorithm, sql);
      let said = '';
      client.stderr?.on('data', (text) => {
        said += text;
      });
      await untilServerRuns(sql);
      const startedAt = performance.now();
      client.kill('SIGINT');
      await once(client, 'close');
      tookMs.push(performance.now() - startedAt);
      expect(said).toContain('ERROR:  canceling statement due to user request');
    }
    console.log(`${algorithm}: ${tookMs.map(Math.round).join(', ')} ms`);
  });
});
