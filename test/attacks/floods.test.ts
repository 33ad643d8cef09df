import { connect } from 'node:net';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** No cap of its own keeps one organization from taking all: what is kept for the others, it does not get. */
const NO_CAP = {
  POSTERN_BACKENDS_MAX: '10',
  POSTERN_BACKENDS_PER_TENANT: '10',
  POSTERN_CLIENTS_PER_TENANT: '30',
  POSTERN_HTTP_REQUESTS_PER_TENANT: '40',
  POSTERN_QUEUE_TIMEOUT_MS: '120000',
  POSTERN_STATEMENT_TIMEOUT_MS: '120000',
};
const WRONG_KEY = `pst_${'0'.repeat(36)}`;
/** No flood ends by itself before callers have waited four times as long. */
const AT_ONCE_MS = 30_000;

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let service: TestService;
  let greedy: TestOrganization;
  let others: TestOrganization[];
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: kind, ...NO_CAP });
    greedy = await service.signUp('Greedy');
    others = [await service.signUp(), await service.signUp()];
  });
  afterAll(() => service.close());

  /** At both doors, while the flood goes on. */
  async function isServed(organization: TestOrganization): Promise<void> {
    const startedAt = performance.now();
    expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    const client = await service.connect(organization);
    expect((await client.query('SELECT 2 AS two')).rows).toEqual([{ two: 2 }]);
    await client.end();
    expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS);
  }

  it('transactions that never end leave the last backend to others', async () => {
    const holders = await Promise.all(Array.from({ length: 20 }, () => service.connect(greedy)));
    const begun: pg.Client[] = [];
    const waits = holders.map((client) =>
      client.query('BEGIN').then(
        () => begun.push(client),
        () => {},
      ),
    );
    await eventually('nine are held', () => begun.length === 9);
    for (const other of others) await isServed(other);
    expect(begun).toHaveLength(9);
    // Those who hold one give it up, until all have had their turn.
    while (begun.length > 0) await begun.shift()?.end();
    for (const client of holders) void client.end();
    await Promise.all(waits);
  });

  it('statements that take their time, over HTTP, leave the last backend to others', async () => {
    const holder = await service.connect(greedy);
    await holder.query('BEGIN; SELECT pg_advisory_xact_lock(6)');
    const flood = Array.from({ length: 40 }, () => service.query(greedy, 'SELECT pg_advisory_xact_lock_shared(6)'));
    // The holder has one of its nine backends.
    await eventually('all have come', async () => {
      const metrics = await (await fetch(`${service.opsUrl}/metrics`)).text();
      return metrics.includes('postern_lease_waiters 32\n');
    });
    for (const other of others) await isServed(other);
    const refused = await service.query(greedy, 'SELECT 1');
    expect([refused.status, refused.body.sqlstate, refused.headers.has('retry-after')]).toEqual([429, '53300', true]);
    await holder.query('COMMIT');
    await holder.end();
    for (const reply of await Promise.all(flood)) expect(reply.status).toBe(200);
  });

  it('an organization that comes late does not wait behind the whole crowd of another', async () => {
    const holder = await service.connect(greedy);
    await holder.query('BEGIN; SELECT pg_advisory_xact_lock(7)');
    let done = 0;
    // The crowd does not come to an end before the others are served.
    const crowd = Array.from({ length: 40 }, async (_, n) => {
      await service.query(greedy, n < 30 ? 'SELECT pg_sleep(0.4)' : 'SELECT pg_advisory_xact_lock_shared(7)');
      done += 1;
    });
    await eventually('the crowd is at work', () => done > 0);
    // Together they want more than is kept for those who have none.
    await Promise.all(others.flatMap((other) => [isServed(other), isServed(other)]));
    await holder.query('COMMIT');
    await holder.end();
    await Promise.all(crowd);
  });

  it('connections beyond its own number are refused, and those of others are not', async () => {
    const clients = await Promise.all(Array.from({ length: 30 }, () => service.connect(greedy)));
    await expect(service.connect(greedy)).rejects.toMatchObject({ severity: 'FATAL', code: '53300' });
    for (const other of others) await isServed(other);
    await Promise.all(clients.map((client) => client.end()));
    await eventually('there is room again', () =>
      service.connect(greedy).then(
        (client) => client.end().then(() => true),
        () => false,
      ),
    );
  });

  it('changes of one organization do not keep others from the control database, nor newcomers', async () => {
    const doors = await startTestService({ POSTERN_PLACEMENT: kind, POSTERN_HTTP_REQUESTS_PER_TENANT: '250' });
    const [busy, other] = [await doors.signUp(), await doors.signUp()];
    const { body: me } = await doors.call('GET', '/api/auth/me', { key: busy.apiKey });
    let isOver = false;
    let changes = 0;
    const flood = Array.from({ length: 200 }, async (_, n) => {
      while (!isOver) {
        const { status } = await doors.call('PATCH', `/api/keys/${me.key.keyId}`, { key: busy.apiKey, body: { name: `name ${n}` } });
        changes += Number(status === 200);
      }
    });
    try {
      await eventually('it is a flood', () => changes > 100);
      const startedAt = changes;
      const call = async (method: string, path: string, body?: object) =>
        (await doors.call(method, path, { key: other.apiKey, ...(body === undefined ? {} : { body }) })).status;
      expect(await call('GET', '/api/auth/me')).toBe(200);
      expect(await call('POST', '/api/keys', { name: 'x', scope: 'write' })).toBe(201);
      expect(await call('PATCH', '/api/organization', { name: 'renamed' })).toBe(200);
      expect((await doors.signUp()).id).toMatch(/^org_/);
      // Behind the crowd, each of the five would have waited for some two hundred changes.
      expect(changes - startedAt).toBeLessThan(400);
    } finally {
      isOver = true;
      await Promise.all(flood);
      await doors.close();
    }
  });

  it('logins that fail do not keep others from logging in (A13)', async () => {
    const attacked = await service.signUp();
    let failed = 0;
    let isOver = false;
    const flood = Array.from({ length: 20 }, async (_, n) => {
      // Half of them in the name of somebody who is not there; after ten each they are refused at the door.
      const id = n % 2 === 0 ? attacked.id : `org_${String(n).padStart(12, '0')}`;
      while (!isOver) {
        await expect(service.connect({ ...attacked, id, apiKey: WRONG_KEY })).rejects.toMatchObject({ severity: 'FATAL' });
        failed += 1;
      }
    });
    await eventually('it is a flood', () => failed > 50);
    for (const other of others) await isServed(other);
    isOver = true;
    await Promise.all(flood);
  });

  it('sessions kept for a long time by what they hold leave the last backend to others', async () => {
    const clients = await Promise.all(Array.from({ length: 20 }, () => service.connect(greedy)));
    const kept: pg.Client[] = [];
    for (const client of clients)
      client.query('CREATE TEMPORARY TABLE mine (i int)').then(
        () => kept.push(client),
        () => {},
      );
    await eventually('nine are held', () => kept.length === 9);
    for (const other of others) await isServed(other);
    expect(kept).toHaveLength(9);
    for (const client of clients) void client.end();
  });
});

describe('sockets without a word', () => {
  const MAX = 40;
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_CLIENTS_MAX: `${MAX}`, POSTERN_LOGIN_TIMEOUT_MS: '600000' });
    organization = await service.signUp();
  });
  afterAll(() => service.close());

  const count = (wanted: string) => service.observations.filter(({ name }) => name === wanted).length;
  const isOpen = () => count('wire.connected') - count('wire.disconnected');

  it('are as many as there may be clients, and keep nobody out, nor harm who is in (B7)', async () => {
    const early = await service.connect(organization);
    await early.query('BEGIN');
    let told = '';
    const flood = Array.from({ length: 5 * MAX }, () =>
      connect(service.wirePort, '127.0.0.1')
        .on('error', () => {})
        .on('data', (bytes) => {
          told += bytes.toString('latin1');
        }),
    );
    await eventually('all have come, and most of them had to go', () => count('wire.connected') > 5 * MAX && isOpen() === MAX + 1);
    const clients: pg.Client[] = [];
    while (clients.length < MAX - 1) clients.push(await service.connect(organization));
    for (const client of [early, ...clients]) expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    const sorry = { severity: 'FATAL', code: '53300', message: 'sorry, too many clients already' };
    await expect(service.connect(organization)).rejects.toMatchObject(sorry);
    await Promise.all([early, ...clients].map((client) => client.end()));
    const late = await service.connect(organization);
    await late.end();
    expect(told).toMatch(/^(?:E\0\0\0\x3bSFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0)+$/s);
    for (const socket of flood) socket.destroy();
    await eventually('none is left', () => isOpen() === 0);
  });
});
