import { once } from 'node:events';
import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { makeInstallation } from '../support/process.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

/** One backend, and somebody in a transaction on it. */
let service: TestService;
let organization: TestOrganization;
let first: pg.Client;
const start = async (variables: Record<string, string> = {}) => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1', ...variables });
  organization = await service.signUp();
  // Settings that have been seen at a login need no backend at the next.
  (await openSession(service, organization)).disconnect();
  first = await service.connect(organization);
  await first.query('BEGIN');
};
const stop = async () => {
  await first.end();
  await service.close();
};

const somebodyWaits = () =>
  eventually('somebody waits', async () => /^postern_lease_waiters [1-9]/m.test(await (await fetch(`${service.opsUrl}/metrics`)).text()));

async function say(client: WireClient, lines: readonly string[]): Promise<void> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
}

async function hear(client: WireClient, count: number): Promise<string[]> {
  const heard: string[] = [];
  while (heard.length < count) {
    const message = await client.read();
    heard.push(typeof message === 'object' ? describeBackend(message) : String(message));
  }
  return heard;
}

describe('while all backends are taken', () => {
  afterEach(stop);

  it('a client like one that was here before logs in all the same, and is told what a server tells (A19)', async () => {
    await start();
    const second = await openSession(service, organization);
    expect(second.parameters.get('server_version')).toMatch(/^\d+/);
    await say(second, ['Query SELECT 1']);
    await somebodyWaits();
    await first.query('COMMIT');
    expect(await hear(second, 4)).toEqual(['RowDescription ?column? int4', 'DataRow 1', 'CommandComplete SELECT 1', 'ReadyForQuery I']);
    second.disconnect();
  });

  it('a simple query that waits too long fails, and the session goes on (L20 R4)', async () => {
    await start({ POSTERN_QUEUE_TIMEOUT_MS: '5000' });
    const second = await openSession(service, organization);
    await say(second, ['Query SELECT 1', 'Query SELECT 2']);
    const [error, ready] = await hear(second, 2);
    expect(error).toMatch(/^ErrorResponse ERROR 53300 ".*" .*hint=/);
    expect(ready).toBe('ReadyForQuery I');
    await first.query('COMMIT');
    expect((await hear(second, 4)).slice(1)).toEqual(['DataRow 2', 'CommandComplete SELECT 1', 'ReadyForQuery I']);
    second.disconnect();
  });

  it('an extended one fails, and what is behind it is thrown away up to its Sync (L20 R4)', async () => {
    await start({ POSTERN_QUEUE_TIMEOUT_MS: '5000' });
    const second = await openSession(service, organization);
    await say(second, ['Parse "" SELECT 1', 'Bind "" "" []', 'Execute', 'Sync']);
    const [error, ready] = await hear(second, 2);
    expect(error).toContain('ErrorResponse ERROR 53300');
    expect(ready).toBe('ReadyForQuery I');
    await first.query('COMMIT');
    await say(second, ['Parse "" SELECT 2', 'Bind "" "" []', 'Execute', 'Sync']);
    expect(await hear(second, 5)).toEqual(['ParseComplete', 'BindComplete', 'DataRow 2', 'CommandComplete SELECT 1', 'ReadyForQuery I']);
    second.disconnect();
  });
});

describe('when the service stops', () => {
  // Nobody is cut off before the test says so.
  beforeEach(() => start({ POSTERN_SHUTDOWN_TIMEOUT_MS: '600000' }));
  afterEach(stop);

  it('those who wait for a backend are told at once, and who is in a transaction may end it (D1 D4)', async () => {
    const second = await openSession(service, organization);
    await say(second, ['Query SELECT 1']);
    await somebodyWaits();
    const stopped = service.close();
    expect((await hear(second, 2)).map((message) => message.slice(0, 27))).toEqual(['ErrorResponse FATAL 57P01 "', 'EOF']);
    second.disconnect();
    // No longer open to anybody: who comes now is refused by the system (D5).
    await expect(openSession(service, organization)).rejects.toThrow();
    expect((await first.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    const told = once(first, 'error');
    await first.query('COMMIT');
    expect((await told)[0]).toMatchObject({ severity: 'FATAL', code: '57P01' });
    await stopped;
  });
});

describe('a second SIGTERM', () => {
  it('ends the process at once, whoever is in a transaction (D3)', async () => {
    const installation = await makeInstallation();
    try {
      const postern = await installation.start({ ...testVariables(), POSTERN_SHUTDOWN_TIMEOUT_MS: '600000' });
      const client = await postern.connect(await postern.signUp());
      await client.query('BEGIN');
      const idle = await postern.connect(await postern.signUp());
      const told = once(idle, 'error');
      void postern.end('SIGTERM');
      expect((await told)[0]).toMatchObject({ code: '57P01' });
      expect(await postern.end('SIGTERM')).toMatchObject({ code: 1, signal: null, stderr: '' });
    } finally {
      await installation.remove();
    }
  });
});
