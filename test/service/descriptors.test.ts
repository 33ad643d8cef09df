import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { openFilesLimit } from '../../src/file-descriptors.ts';
import { connectionLimits } from '../../src/workers/shared-parts.ts';
import { RawClient } from '../http/raw-client.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

const UNKNOWN_KEY = `pst_${'0'.repeat(36)}`;
const OPEN_FILES = 400;

describe('a Postern that may have few files open', () => {
  let installation: Installation;
  let postern: PosternProcess;
  beforeEach(async () => {
    installation = await makeInstallation();
    postern = await installation.startWithin(OPEN_FILES, testVariables());
  });
  afterEach(() => installation.remove());

  const messages = () => postern.log().map(({ msg }) => String(msg));

  /** Both doors and the operator's port. */
  async function serves(): Promise<void> {
    const organization = await postern.signUp();
    const client = await postern.connect(organization);
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
    expect((await postern.query(organization, 'SELECT 2 AS two')).body.rows).toEqual([{ two: 2 }]);
    expect((await fetch(`${postern.opsUrl}/metrics`)).status).toBe(200);
  }

  it('says what its settings count as then', () => {
    expect(messages()).toContain(
      'the limit of open files (ulimit -n) is 400, the settings need 30152: POSTERN_HTTP_CONNECTIONS_MAX is lowered to 82, POSTERN_CLIENTS_MAX to 82',
    );
  });

  it.each(['httpUrl', 'wirePort', 'opsUrl'] as const)(
    'serves at all ports while strangers hold all they can get at one (%s)',
    async (door) => {
      const place = postern[door];
      const port = typeof place === 'number' ? place : Number(new URL(place).port);
      const half = `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${UNKNOWN_KEY}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`;
      const strangers: RawClient[] = [];
      for (let n = 0; n < OPEN_FILES; n++) {
        const stranger = await RawClient.open(port);
        if (door !== 'wirePort') stranger.send(half);
        strangers.push(stranger);
      }
      await serves();
      expect(messages().filter((message) => message.startsWith('no more files'))).toEqual([]);
      for (const { socket } of strangers) socket.destroy();
    },
  );

  it('tells when it can open no more, and serves again when it can', async () => {
    const run = promisify(execFile);
    const limit = (files: number) => run('prlimit', ['--pid', String(postern.pid), `--nofile=${files}:${OPEN_FILES}`]);
    await eventually('it is told', async () => {
      // What is open stays open; some of it may have been closed since the last look.
      const open = new Set(await readdir(`/proc/${postern.pid}/fd`));
      await limit(Array.from({ length: OPEN_FILES }, (_, file) => file).find((file) => !open.has(String(file))) ?? OPEN_FILES);
      return messages().some((message) => message.startsWith('no more files can be opened'));
    });
    await limit(OPEN_FILES);
    await serves();
  });
});

it('knows how many files it may have open', async () => {
  const { stdout } = await promisify(execFile)('bash', ['-c', 'ulimit -n']);
  expect(openFilesLimit()).toBe(stdout.trim() === 'unlimited' ? undefined : Number(stdout));
});

describe('the maximum of connections', () => {
  const config = readConfig({ POSTERN_HTTP_CONNECTIONS_MAX: '1000', POSTERN_CLIENTS_MAX: '2000' });
  const told: unknown[] = [];
  const limits = (openFiles: number | undefined) => connectionLimits(config, 100, openFiles, (observation) => told.push(observation));

  it('is as set where enough files can be opened, or nobody knows how many', () => {
    expect([limits(undefined), limits(5_228)]).toEqual([
      { http: 1_000, wire: 2_000 },
      { http: 1_000, wire: 2_000 },
    ]);
    expect(told).toEqual([]);
  });

  it('is less at both doors where it is not, and at least one', () => {
    expect([limits(4_228), limits(2_628), limits(100)]).toEqual([
      { http: 1_000, wire: 1_500 },
      { http: 800, wire: 800 },
      { http: 1, wire: 1 },
    ]);
    expect(told).toHaveLength(3);
  });
});
