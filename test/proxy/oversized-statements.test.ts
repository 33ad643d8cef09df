import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WireClient } from '../conversations/wire-client.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** More than the wire door keeps of a statement. */
const long = (sql: string) => `${sql}${' '.repeat(1_200_000)}`;

/** So much of a Query is looked at before it is sent. */
const BEGINNING = 65_536;
const COMMENT = '/**/';
const padding = (length: number) => `/*${'x'.repeat(length - COMMENT.length)}*/`;

/** The word behind the beginning, at its end, and cut in two by it. */
const places = (word: string) => [100_000, 400_000, BEGINNING, BEGINNING - Math.floor(word.length / 2)];

/** @returns the types of the messages up to ReadyForQuery */
async function readToReady(client: WireClient): Promise<string> {
  for (let types = ''; ; ) {
    const message = await client.read();
    if (typeof message !== 'object') throw new Error(`${message} behind ${types}`);
    types += message.type;
    if (message.type === 'Z') return types;
  }
}

describe.each(PLACEMENTS)('placement %s', (POSTERN_PLACEMENT) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_PLACEMENT });
    organization = await service.signUp();
  });
  afterAll(() => service.close());

  describe('statements that are too large to be prepared again elsewhere', () => {
    it('work without a name, also as the first of a session', async () => {
      const client = await service.connect(organization);
      for (const value of [1, 2]) expect((await client.query(long('SELECT $1::int4 AS a'), [value])).rows).toEqual([{ a: value }]);
      expect((await client.query('SELECT $1::int4 AS a', [3])).rows).toEqual([{ a: 3 }]);
      await expect(client.query(long('SELECT $1::int4 AS'), [1])).rejects.toMatchObject({ code: '42601' });
      expect((await client.query(long('SELECT $1::int4 AS a'), [4])).rows).toEqual([{ a: 4 }]);
      await client.end();
    });

    it('keep their names to themselves', async () => {
      const [one, other] = [await service.connect(organization), await service.connect(organization)];
      for (let round = 0; round < 2; round++) {
        expect((await one.query({ name: 'same', text: long('SELECT 1 AS a') })).rows).toEqual([{ a: 1 }]);
        expect((await other.query({ name: 'same', text: long('SELECT 2 AS a') })).rows).toEqual([{ a: 2 }]);
      }
      await one.end();
      const next = await service.connect(organization);
      expect((await next.query({ name: 'same', text: 'SELECT 3 AS a' })).rows).toEqual([{ a: 3 }]);
      await next.end();
      await other.end();
    });

    it('find their tables, and can be refused', async () => {
      const client = await service.connect(organization);
      await client.query(long('CREATE TABLE public.large (a int4)'));
      await client.query(long('INSERT INTO public.large VALUES (1)'));
      for (const name of ['named', '']) {
        const query = { name, text: long('SELECT a FROM public.large WHERE a = $1'), values: [1] };
        expect((await client.query(query)).rows).toEqual([{ a: 1 }]);
        await expect(client.query({ ...query, name: '', text: long('SELECT a FROM public.missing') })).rejects.toMatchObject({
          code: '42P01',
          message: 'relation "public.missing" does not exist',
        });
      }
      await client.end();
    });
  });

  describe('what a text says behind its beginning', () => {
    const one = () => service.connect(organization);

    it.each(places('pg_advisory_lock'))('takes a lock, which stays with who took it (%i bytes)', async (length) => {
      const [holder, other] = [await one(), await one()];
      await holder.query(`SELECT ${padding(length - 'SELECT '.length)}pg_advisory_lock(${length})`);
      const attempt = () => other.query(`SELECT pg_try_advisory_lock(${length}) AS taken`);
      expect((await attempt()).rows).toEqual([{ taken: false }]);
      await holder.end();
      await expect.poll(async () => (await attempt()).rows).toEqual([{ taken: true }]);
      await other.end();
    });

    it('takes a lock without a name, and of any length', async () => {
      const [holder, other] = [await one(), await one()];
      await holder.query(`SELECT ${padding(3_000_000)}pg_advisory_lock($1)`, [7]);
      expect((await other.query('SELECT pg_try_advisory_lock(7) AS taken')).rows).toEqual([{ taken: false }]);
      await holder.end();
      await other.end();
    });

    it.each(places('lastval'))('does not tell what others got from a sequence (%i bytes)', async (length) => {
      const [writer, reader] = [await one(), await one()];
      await writer.query('CREATE TABLE IF NOT EXISTS numbered (n serial)');
      await writer.query('INSERT INTO numbered DEFAULT VALUES');
      const told = reader.query(`SELECT ${padding(length - 'SELECT '.length)}lastval()`);
      await expect(told).rejects.toMatchObject({ code: '55000' });
      await writer.end();
      await reader.end();
    });

    it.each(places('setseed'))('leaves no seed to others (%i bytes)', async (length) => {
      const seed = async (sql: string) => {
        const client = await one();
        await client.query(sql);
        return client;
      };
      const [seeded, again] = [await seed(`SELECT ${padding(length - 'SELECT '.length)}setseed(0.5)`), await one()];
      const other = (await again.query('SELECT random() AS r')).rows;
      const own = (await seeded.query('SELECT random() AS r')).rows;
      await seeded.end();
      const control = await seed('SELECT setseed(0.5)');
      expect(own).toEqual((await control.query('SELECT random() AS r')).rows);
      expect(other).not.toEqual(own);
      await again.end();
      await control.end();
    });

    it.each(places('SET my.own'))('leaves no setting to others (%i bytes)', async (length) => {
      const [owner, other] = [await one(), await one()];
      await owner.query(`SELECT 1;${padding(length - 'SELECT 1;'.length)} SET my.own = 'mine'`);
      const shown = async (client: typeof owner) =>
        (await client.query("SELECT current_setting('my.own', true) AS own")).rows[0]?.own ?? '';
      expect(await shown(other)).toBe('');
      expect(await shown(owner)).toBe('mine');
      await owner.end();
      await other.end();
    });

    it('is rewritten once, also when it has to wait for a backend', async () => {
      const holders = [await one(), await one()];
      for (const holder of holders) await holder.query('BEGIN');
      const listener = await one();
      const heard: string[] = [];
      listener.on('notification', ({ channel }) => heard.push(channel));
      const listening = listener.query(`LISTEN told;${padding(400_000)}`);
      await expect.poll(async () => (await fetch(`${service.opsUrl}/metrics`)).text()).toContain('postern_lease_waiters 1');
      for (const holder of holders) await holder.query('COMMIT');
      await listening;
      for (const holder of holders) await holder.query('NOTIFY told');
      await expect.poll(() => heard).toEqual(['told', 'told']);
      for (const client of [...holders, listener]) await client.end();
    });

    it('ends before what follows it', async () => {
      const client = await openSession(service, organization);
      await client.write(queryMessage(`CREATE TABLE public.behind (a int4);${padding(400_000)}`));
      await readToReady(client);
      await client.write(
        Buffer.concat([
          queryMessage(`SELECT 1 ${padding(400_000)}`),
          queryMessage('TABLE public.behind'),
          queryMessage(`SELECT 2 ${padding(400_000)}`),
        ]),
      );
      for (const types of ['TDCZ', 'TCZ', 'TDCZ']) expect(await readToReady(client)).toBe(types);
      client.disconnect();
    });

    it('keeps nobody on a backend when there is nothing in it', async () => {
      const other = await service.signUp();
      const clients = await Promise.all([service.connect(other), service.connect(other), service.connect(other)]);
      await clients[0].query('CREATE TABLE IF NOT EXISTS numbered (n serial)');
      for (const client of clients) await client.query(`INSERT INTO numbered VALUES (1)${', (2)'.repeat(50_000)}`);
      for (const client of clients) await client.end();
    });
  });
});
