import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { openSession } from '../support/raw-session.ts';
import { PLACEMENTS } from '../support/service.ts';
import { DOORS } from './doors.ts';
import { readReply } from './entrances.ts';
import { makeScene, type Scene } from './scene.ts';

/** What goes from session to session without being a row: notifications, locks, snapshots, cancel requests. */
describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await makeScene(kind);
  });
  afterAll(() => scene.close());

  describe('notifications do not cross', () => {
    /** Hears everything there is to hear up to a notification of its own. */
    async function heardBy(listener: pg.Client, meanwhile: () => Promise<unknown>): Promise<string[]> {
      const heard: string[] = [];
      listener.on('notification', ({ channel, payload }) => heard.push(`${channel}: ${payload}`));
      await meanwhile();
      await listener.query("NOTIFY news, 'the end'");
      await eventually('the last notification', () => heard.includes('news: the end'));
      listener.removeAllListeners('notification');
      return heard;
    }

    const forgeries = ({ victim }: Scene) => [
      "NOTIFY news, 'forged'",
      "SELECT pg_notify('news', 'forged')",
      `NOTIFY "${victim.id}:news", 'forged'`,
      `SELECT pg_notify('${victim.id}:news', 'forged')`,
      `SELECT pg_notify('${victim.id}' || ':news', 'forged')`,
      `DO $$ BEGIN EXECUTE 'NOT' || 'IFY "${victim.id}:news", ''forged'''; END $$`,
      `DO $$ BEGIN EXECUTE 'SELECT pg_not' || 'ify(''${victim.id}:news'', ''forged'')'; END $$`,
    ];

    it.each(['wire', 'http'] as const)('what the intruder sends at the %s door is not heard by the victim', async (door) => {
      const listener = await scene.service.connect(scene.victim);
      await listener.query('LISTEN news');
      const heard = await heardBy(listener, async () => {
        await DOORS.http(scene.service, scene.victim, "SELECT pg_notify('news', 'true')");
        for (const sql of forgeries(scene))
          expect(await DOORS[door](scene.service, scene.intruder, sql)).toMatchObject({ sqlstate: '00000' });
      });
      expect(heard).toEqual(['news: true', 'news: the end']);
      await listener.end();
    });

    it('what the victim sends is not heard by the intruder', async () => {
      const { service, intruder, victim } = scene;
      const listener = await service.connect(intruder);
      await listener.query(`LISTEN news; LISTEN "${victim.id}:news"`);
      await listener.query(`DO $$ BEGIN EXECUTE 'LIS' || 'TEN "${victim.id}:news"'; EXECUTE 'LIS' || 'TEN news'; END $$`);
      const heard = await heardBy(listener, async () => {
        await DOORS.http(service, victim, "SELECT pg_notify('news', 'secret')");
        await DOORS.wire(service, victim, "NOTIFY news, 'secret'");
      });
      expect(heard).toEqual(['news: the end']);
      await listener.end();
    });
  });

  describe('advisory locks do not cross', () => {
    const locks = [
      'pg_advisory_lock(72707369)',
      'pg_advisory_lock(1, 2)',
      'pg_advisory_lock_shared(3)',
      "pg_advisory_lock(hashtextextended('postern.migrations VICTIM', 0))",
      "pg_advisory_lock(hashtextextended('postern.idempotency_keys VICTIM key', 0))",
      "pg_advisory_lock(hashtextextended('postern.tables VICTIM', 0))",
      "pg_advisory_lock(hashtextextended('VICTIM', 0))",
    ];

    it('whatever the intruder holds, the victim gets, and the service works for it', async () => {
      const { service, intruder, victim } = scene;
      const holder = await service.connect(intruder);
      for (const lock of locks) await holder.query(`SELECT ${lock.replace('VICTIM', victim.id)}`);
      const own = await service.query(intruder, 'SELECT pg_try_advisory_xact_lock(72707369) AS free');
      expect(own.body.rows).toEqual([{ free: false }]);

      const tries =
        'SELECT pg_try_advisory_xact_lock(72707369) AND pg_try_advisory_xact_lock(1, 2) AND pg_try_advisory_xact_lock(3) AS free';
      expect((await scene.owner.query(tries)).rows).toEqual([{ free: true }]);
      expect((await service.query(victim, tries)).body.rows).toEqual([{ free: true }]);
      const call = { key: victim.apiKey, headers: { 'idempotency-key': 'key' } };
      expect(
        (await service.call('POST', '/api/migrations', { ...call, body: { name: 'first', sql: 'CREATE TABLE migrated ()' } })).status,
      ).toBe(201);
      await holder.end();
    });
  });

  it('a snapshot of one holds up an index of another only in a shared database: visible by design', async () => {
    const builder = await scene.service.connect(scene.intruder);
    await builder.query("CREATE TABLE indexed (note text); SET lock_timeout = '300ms'");
    const build = () => {
      return builder.query('CREATE INDEX CONCURRENTLY ON indexed (note)').then(
        () => 'built',
        ({ code }: { code: string }) => code,
      );
    };
    // The resident has had its snapshot all the time.
    expect(await build()).toBe(kind === 'database' ? 'built' : '55P03');
    await scene.resident.query('COMMIT');
    // Other organizations of the cluster come and go.
    await builder.query("SET lock_timeout = '60s'");
    await expect.poll(build).toBe('built');
    await builder.end();
  });

  describe('cancel requests do not cross', () => {
    /** The victim's statement runs and waits for a lock of its own, until it is cancelled. */
    async function running(): Promise<WireClient> {
      const client = await openSession(scene.service, scene.victim);
      await client.write(encodeFrontend('Query SELECT pg_advisory_lock(5)'));
      // A cancel request that comes before its statement has begun is lost.
      await eventually('it waits', async () => (await scene.superuser.query(WAITING, [scene.victim.id])).rowCount === 1);
      return client;
    }

    it.each(['nothing but its process id', 'the keys of its own session', 'the process id of the backend'])('with %s', async (what) => {
      const { service, intruder, victim, facts } = scene;
      const holder = await service.connect(victim);
      await holder.query('SELECT pg_advisory_lock(5)');
      const target = await running();
      const own = await openSession(service, intruder);
      const guesses = {
        'nothing but its process id': [
          `${target.processId} 00000000`,
          `${target.processId} ffffffff`,
          `${target.processId} ${'00'.repeat(32)}`,
        ],
        'the keys of its own session': [`${target.processId} ${own.secretKey.toString('hex')}`],
        'the process id of the backend': [`${facts.processId} ${own.secretKey.toString('hex')}`, `${facts.processId} 00000000`],
      }[what];
      for (const guess of guesses ?? []) await cancel(scene, guess);
      expect(target.answered).toBe(false);
      await cancel(scene, `${target.processId} ${target.secretKey.toString('hex')}`);
      expect((await readReply(target)).sqlstate).toBe('57014');
      for (const client of [target, own]) client.disconnect();
      await holder.end();
    });
  });
});

const WAITING = "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'advisory'";

/** Sends a CancelRequest on a connection of its own, and waits until the server has taken note and closed it. */
async function cancel({ service }: Scene, key: string): Promise<void> {
  const client = await WireClient.open('127.0.0.1', service.wirePort);
  await client.write(encodeFrontend(`CancelRequest ${key}`));
  expect(await client.read()).toBe('EOF');
  client.disconnect();
}
