import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { channelSecret, channelsOf, formerChannelsOf } from '../../src/auth/derived-secrets.ts';
import { describeSchema } from '../src/rewriting/dump/describe-schema.ts';
import { eventually } from '../support/eventually.ts';
import { TEST_SECRET } from '../support/service.ts';
import { DOORS } from './doors.ts';
import { makeScene, type Scene } from './scene.ts';

/** Everything of a schema that can hold a notification, and what each of them says. */
const OBJECTS = `
  CREATE TABLE orders (
    id int,
    note text DEFAULT pg_notify('news', 'a default')::text,
    CHECK (pg_notify('news', 'a check')::text = '')
  );
  CREATE FUNCTION on_order() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    NOTIFY news, 'a statement in a function';
    PERFORM pg_notify('news', 'a call in a function');
    EXECUTE 'NOTIFY news, ''a statement in EXECUTE''';
    EXECUTE 'SELECT pg_not' || 'ify($1, $2)' USING 'news', 'SQL that was put together';
    PERFORM pg_catalog.pg_notify(TG_ARGV[0], TG_ARGV[1]);
    RETURN NEW;
  END $$;
  CREATE TRIGGER ordered AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION on_order('news', 'arguments of a trigger');
  CREATE FUNCTION in_sql() RETURNS void LANGUAGE sql AS 'NOTIFY news, ''a statement in SQL''; SELECT pg_notify(''news'', ''a call in SQL'')';
  CREATE FUNCTION atomic() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT pg_notify('news', 'an SQL body'); END;
  CREATE VIEW telling AS SELECT pg_notify('news', 'a view')::text AS told;
  CREATE RULE telling AS ON UPDATE TO orders DO ALSO (NOTIFY news, 'a rule'; NOTIFY news, 'a rule, again'; NOTIFY news, 'a rule, at last');
  CREATE FUNCTION hear() RETURNS void LANGUAGE plpgsql AS $$ BEGIN LISTEN news; END $$;
  CREATE FUNCTION ignore() RETURNS void LANGUAGE sql AS 'UNLISTEN news';
  CREATE FUNCTION keeps_found() RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM 1 WHERE false;
    NOTIFY other;
    RETURN FOUND;
  END $$`;

const USES: readonly (readonly [sql: string, ...said: string[]])[] = [
  [
    'INSERT INTO orders (id) VALUES (1)',
    'a default',
    'a check',
    'a statement in a function',
    'a call in a function',
    'a statement in EXECUTE',
    'SQL that was put together',
    'arguments of a trigger',
  ],
  ['SELECT in_sql()', 'a statement in SQL', 'a call in SQL'],
  ['SELECT atomic()', 'an SQL body'],
  ['SELECT told FROM telling', 'a view'],
  ['UPDATE orders SET id = 2 WHERE id = 3', 'a rule', 'a rule, again', 'a rule, at last'],
  ["DO $$ BEGIN NOTIFY news, 'a block'; EXECUTE 'NOT' || 'IFY news, ''raw'''; END $$", 'a block'],
  ["SELECT pg_notify('ne' || 'ws', 'a call')", 'a call'],
  ["NOTIFY news, 'a statement'", 'a statement'],
];

describe('channels in a shared database', () => {
  let scene: Scene;
  let listener: pg.Client;
  let heard: string[];
  /** What stands before the names of the victim's channels, which no other organization may know. */
  let prefix: string;
  beforeAll(async () => {
    scene = await makeScene('schema');
    await scene.owner.query(OBJECTS);
    listener = await scene.service.connect(scene.victim, { options: '-c postern.pool=session' });
    listener.on('notification', ({ channel, payload }) => heard.push(`${channel}: ${payload}`));
    await listener.query('SELECT hear()');
    prefix = channelsOf(channelSecret(TEST_SECRET), scene.victim.id);
    expect((await listener.query('SELECT pg_listening_channels() AS channel')).rows).toEqual([{ channel: 'news' }]);
  });
  afterAll(async () => {
    await listener.end();
    await scene.close();
  });

  /** Everything that is heard up to a notification of the listener's own. */
  async function during(work: () => Promise<unknown>): Promise<string[]> {
    heard = [];
    await work();
    await listener.query("NOTIFY news, 'the end'");
    await eventually('the last notification', () => heard.includes('news: the end'));
    return heard.slice(0, -1);
  }

  it.each(USES)('are heard by their own organization: %s', async (sql, ...said) => {
    expect(await during(() => scene.owner.query(sql))).toEqual(said.map((payload) => `news: ${payload}`));
  });

  it('are listened to, and no longer, by functions too; and a notification leaves FOUND as it was', async () => {
    const { owner } = scene;
    const channels = async () => (await listener.query('SELECT pg_listening_channels()')).rowCount;
    expect(await channels()).toBe(1);
    await listener.query('SELECT ignore()');
    expect(await channels()).toBe(0);
    await listener.query('SELECT hear()');
    expect(await channels()).toBe(1);
    expect((await owner.query('SELECT keeps_found() AS found')).rows).toEqual([{ found: false }]);
  });

  it('have a prefix that stands in nothing that the intruder can read', async () => {
    expect(prefix).toMatch(/^[0-9a-f]{16}$/);
    const client = await scene.service.connect(scene.intruder);
    const definitions = await describeSchema(client, scene.victim.id);
    expect(definitions.filter((line) => line.includes('a statement in a function'))).toHaveLength(1);
    expect(definitions.filter((line) => line.includes(prefix))).toEqual([]);
    const { rows: readable } = await client.query<{ name: string }>(
      `SELECT oid::regclass::text AS name FROM pg_class
       WHERE relkind IN ('r', 'v') AND relnamespace::regnamespace::text IN ('pg_catalog', 'information_schema', 'postern')
         AND has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')`,
    );
    expect(readable.map(({ name }) => name)).toEqual(expect.arrayContaining(['pg_proc', 'pg_rewrite', 'pg_trigger']));
    for (const { name } of readable) {
      const read = `SELECT t::text AS line FROM ${name} AS t WHERE t::text LIKE '%${prefix.slice(0, 8)}' || '${prefix.slice(8)}%'`;
      expect((await client.query(read)).rows, name).toEqual([]);
    }
    await client.end();
  });

  it('cannot be spoken on by another, in whatever way it tries', async () => {
    const { service, intruder, victim } = scene;
    const { rows } = await (async () => {
      const own = await service.connect(intruder, { options: '-c postern.pool=session' });
      await own.query('LISTEN news');
      return own.query<{ channel: string }>('SELECT pg_listening_channels() AS channel').finally(() => own.end());
    })();
    const former = formerChannelsOf(TEST_SECRET, victim.id);
    const channels = ['news', rows[0]?.channel, `${victim.id}:news`, `${former}:news`, `${'0'.repeat(16)}:news`];
    const forgeries = channels.flatMap((channel) => [
      `NOTIFY "${channel}", 'forged'`,
      `SELECT pg_notify('${channel}', 'forged')`,
      `SELECT postern.pg_notify('${channel}', 'forged')`,
      `CALL postern.notify('${channel}', 'forged')`,
      `DO $$ BEGIN NOTIFY "${channel}", 'forged'; EXECUTE 'NOT' || 'IFY "${channel}", ''forged'''; END $$`,
      `DO $$ BEGIN EXECUTE 'SELECT pg_catalog.pg_not' || 'ify(''${channel}'', ''forged'')'; END $$`,
    ]);
    const said = await during(async () => {
      for (const door of Object.values(DOORS)) {
        for (const sql of forgeries) expect(await door(service, intruder, sql), sql).toMatchObject({ sqlstate: '00000' });
      }
    });
    expect(said).toEqual([]);
  });

  it.each([
    'SELECT * FROM postern_private.channel_secret',
    'SELECT * FROM postern_private.former_channels',
    "SELECT postern.server_channel('news')",
    "SELECT postern_pg_notify('news', 'forged')",
    'CREATE TABLE postern.planted ()',
    "CREATE OR REPLACE FUNCTION postern.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''",
    'ALTER FUNCTION postern.server_channel(text) SECURITY INVOKER',
    'GRANT SELECT ON postern_private.channel_secret TO PUBLIC',
  ])('do not give away what makes them: %s', async (sql) => {
    for (const door of Object.values(DOORS)) expect(await door(scene.service, scene.intruder, sql)).toMatchObject({ sqlstate: '42501' });
  });

  it('take no function, operator or table of the intruder for one of theirs', async () => {
    const { service, intruder } = scene;
    const client = await service.connect(intruder);
    const caught = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught: % %', $1, current_user; END $$";
    await client.query(`
      CREATE FUNCTION join_texts(text, text) RETURNS text ${caught};
      CREATE OPERATOR || (LEFTARG = text, RIGHTARG = text, FUNCTION = join_texts);
      CREATE FUNCTION sha256(bytea) RETURNS bytea ${caught};
      CREATE FUNCTION convert_to(text, name) RETURNS bytea ${caught};
      CREATE FUNCTION format(text, text) RETURNS text ${caught};
      CREATE FUNCTION server_channel(text) RETURNS text ${caught};
      CREATE TEMPORARY TABLE channel_secret (secret bytea);
      CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void ${caught}`);
    await client.query(`SET search_path = ${intruder.id}, pg_temp, pg_catalog`);
    await expect(client.query("SELECT 'a'::text || 'b'::text")).rejects.toThrow('caught');
    for (const sql of ["SELECT pg_catalog.pg_notify('a', 'b')", "SELECT postern.pg_notify('a', 'b')", "CALL postern.notify('a')"]) {
      await client.query(sql);
    }
    await client.query("CALL postern.listen('a')");
    await client.query("CALL postern.unlisten('a')");
    await client.end();
  });
});
