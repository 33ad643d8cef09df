import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** In the `schema` placement an organization's `public` is a schema of another name; neither door shows it. */
let service: TestService;
let acme: TestOrganization;
let rival: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_PLACEMENT: 'schema' });
  acme = await service.signUp();
  rival = await service.signUp('Rival');
});
afterAll(() => service.close());

describe('a public schema of one’s own', () => {
  it('is written and read as public through both doors', async () => {
    const client = await service.connect(acme);
    await client.query('CREATE TABLE public.users (id serial PRIMARY KEY, name text)');
    await client.query(`INSERT INTO "public"."users" (name) VALUES ($1)`, ['Ada']);
    await client.end();
    const { status, body } = await service.query(acme, "SELECT u.name, 'public.x' AS data FROM public.users u WHERE id = $1", [1]);
    expect([status, body.rows]).toEqual([200, [{ name: 'Ada', data: 'public.x' }]]);
    const again = await service.query(acme, 'SELECT name FROM public.users WHERE id = $1', [1]);
    expect(again.body.rows).toEqual([{ name: 'Ada' }]);
  });

  it('is another for each organization', async () => {
    const { body } = await service.query(rival, 'SELECT name FROM public.users');
    expect(body).toMatchObject({ sqlstate: '42P01', message: expect.stringContaining('"public.users"'), postgres: { position: 18 } });
    const reach = await service.query(rival, `SELECT name FROM ${acme.id}.users`);
    expect(reach.body).toMatchObject({ sqlstate: '42501' });
  });

  it('stands in error positions, details and constraint errors', async () => {
    const { body } = await service.query(acme, 'INSERT INTO public.users (id) VALUES (1)');
    expect(body).toMatchObject({ sqlstate: '23505', postgres: { schema: 'public', table: 'users' } });
    const wire = await service.connect(acme);
    await expect(wire.query('SELECT * FROM public.users, public.nowhere')).rejects.toMatchObject({
      code: '42P01',
      position: '29',
      message: 'relation "public.nowhere" does not exist',
    });
    await expect(wire.query('INSERT INTO public.users (id) VALUES ($1)', [1])).rejects.toMatchObject({ code: '23505', schema: 'public' });
    await wire.end();
  });

  it('is the search path, however it is asked for', async () => {
    const client = await service.connect(acme);
    const shown = async () => (await client.query('SHOW search_path')).rows[0].search_path;
    expect(await shown()).toBe('"$user", public');
    await client.query('SET search_path TO public, pg_catalog');
    expect(await shown()).toBe('public, pg_catalog');
    await client.query("SELECT set_config('search_path', 'public', false)");
    expect(await shown()).toBe('public');
    expect((await client.query('SELECT name FROM users')).rows).toEqual([{ name: 'Ada' }]);
    const asked = async (text: string, values: unknown[] = []) => Object.values((await client.query(text, values)).rows[0]);
    expect(await asked("SELECT current_setting('search_path')")).toEqual(['public']);
    expect(await asked("SELECT current_setting('search_path') AS path, $1 AS data", ['x'])).toEqual([acme.id, 'x']);
    expect(await asked("SELECT set_config('search_path', $1, false), current_user", ['"$user", public'])).toEqual([
      '"$user", public',
      acme.id,
    ]);
    expect(await asked("SELECT setting FROM pg_settings WHERE name = 'search_path'")).toEqual(['"$user", public']);
    expect(await asked("SELECT name FROM users WHERE current_setting('search_path') <> ''")).toEqual(['Ada']);
    await client.end();
    for (const text of ['SHOW search_path', "SELECT current_setting('search_path') AS search_path"]) {
      expect((await service.query(acme, text)).body.rows).toEqual([{ search_path: '"$user", public' }]);
    }
    const started = await service.connect(acme, { options: '-c search_path=public' });
    expect((await started.query('SELECT name FROM users')).rows).toEqual([{ name: 'Ada' }]);
    await started.end();
  });

  it('takes transactions and migrations over HTTP', async () => {
    const migration = await service.call('POST', '/api/migrations', {
      key: acme.apiKey,
      body: { name: '1', sql: 'CREATE TABLE public.notes (id int PRIMARY KEY);\nCREATE INDEX ON public.notes (id);' },
    });
    expect([migration.status, migration.body]).toMatchObject([201, { alreadyApplied: false }]);
    const failing = await service.call('POST', '/api/migrations', {
      key: acme.apiKey,
      body: { name: '2', sql: 'SELECT 1 FROM public.notes;\n  SELECT * FROM public.notes, public.nowhere' },
    });
    expect(failing.body).toMatchObject({ sqlstate: '42P01', statementIndex: 1, postgres: { line: 2, column: 31 } });
    const { body } = await service.call('POST', '/api/transaction', {
      key: acme.apiKey,
      body: { statements: [{ sql: 'INSERT INTO public.notes VALUES ($1)', params: [7] }, { sql: 'SELECT id FROM "public".notes' }] },
    });
    expect(body.results[1].rows).toEqual([{ id: 7 }]);
  });

  it('has channels that others do not hear', async () => {
    const [own, other] = [await service.connect(acme), await service.connect(rival)];
    const heard: string[] = [];
    own.on('notification', ({ channel, payload }) => heard.push(`${channel} ${payload}`));
    other.on('notification', ({ channel }) => heard.push(`rival ${channel}`));
    await own.query('LISTEN news');
    await other.query('LISTEN news');
    await other.query("NOTIFY news, 'theirs'");
    await own.query("SELECT pg_notify('news', 'ours')");
    await own.query('SELECT 1');
    await other.query('SELECT 1');
    expect(heard.sort()).toEqual(['news ours', 'rival news']);
    await own.end();
    await other.end();
  });

  it('has the names of channels and locks that it gave them', async () => {
    const own = await service.connect(acme);
    const long = 'x'.repeat(60);
    await own.query(`LISTEN news; LISTEN "${long}"`);
    expect((await own.query('SELECT c FROM pg_listening_channels() AS l (c) ORDER BY 1 DESC')).rows).toEqual([{ c: long }, { c: 'news' }]);
    const named = await own.query({ name: 'channels', text: 'SELECT pg_listening_channels() AS c' });
    expect(named.rows.map(({ c }) => c).sort()).toEqual(['news', long]);
    const holder = await service.connect(acme);
    expect((await holder.query('SELECT pg_advisory_lock(7) AS locked')).rows).toEqual([{ locked: '' }]);
    const waiting = own.query("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(7)");
    await expect(waiting).rejects.toMatchObject({ code: '55P03', where: undefined });
    await own.end();
    await holder.end();
  });

  it('hears nothing that another organization makes up', async () => {
    const own = await service.connect(acme);
    const heard: string[] = [];
    own.on('notification', ({ payload = '' }) => heard.push(payload));
    await own.query('LISTEN news');
    const forged = `DO $$ BEGIN EXECUTE 'NOT' || 'IFY "${acme.id}:news", ''forged'''; EXECUTE 'NOT' || 'IFY news, ''plain'''; END $$`;
    expect((await service.query(rival, forged)).status).toBe(200);
    await own.query("NOTIFY news, 'real'");
    await own.query('SELECT 1');
    expect(heard).toEqual(['real']);
    await own.end();
  });

  it('is rewritten in texts of megabytes too', async () => {
    const rows = Array.from({ length: 30_000 }, (_, i) => `(${i + 100}, 'public.${i}')`).join(',');
    const client = await service.connect(acme);
    await client.query(`INSERT INTO public.users (id, name) VALUES ${rows}`);
    await client.end();
    const over = await service.query(
      acme,
      `SELECT count(*)::int AS n FROM public.users WHERE name IN ('x'${", 'public.1'".repeat(40_000)})`,
    );
    expect(over.body.rows).toEqual([{ n: 1 }]);
  });
});
