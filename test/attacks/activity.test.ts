import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DOORS } from './doors.ts';
import { makeScene, type Scene } from './scene.ts';

/** Each of these would say it of any row that it is shown. */
const TELLTALES = `
  CREATE FUNCTION tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE 'told: %', $1; END $$;
  CREATE FUNCTION same(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'told: % %', $1, $2; END $$;
  CREATE OPERATOR = (LEFTARG = name, RIGHTARG = name, FUNCTION = same);
  CREATE FUNCTION pg_has_role(name, text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
  CREATE FUNCTION current_database() RETURNS name LANGUAGE sql AS $$ SELECT 'postgres'::name $$;
  CREATE FUNCTION as_owner(what text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE n bigint; BEGIN EXECUTE what INTO n; RETURN n; END $$;
  CREATE VIEW kept AS SELECT * FROM pg_stat_activity`;

describe('the activity of the server, with a database for each organization', () => {
  let scene: Scene;
  let path: string;
  beforeAll(async () => {
    scene = await makeScene('database');
    const client = await scene.service.connect(scene.intruder);
    await client.query(TELLTALES);
    await client.end();
    path = 'SET LOCAL search_path = public, pg_catalog';
  });
  afterAll(() => scene.close());

  /** Rows that are not the intruder's. */
  const others = (view: string) => `SELECT count(*) FROM ${view} WHERE datname IS NULL OR datname::text <> '${scene.intruder.id}'`;
  const ofOthers = {
    'a plain look': () => [others('pg_stat_activity')],
    'the database of another': () => [others('pg_stat_database')],
    'a look by another function': () => [others('postern_own_pg_stat_activity()')],
    'names of its own before those of the server': () => [path, others('pg_catalog.pg_stat_activity')],
    'names of its own before those of the server, at databases': () => [path, others('pg_catalog.pg_stat_database')],
    'a view': () => [others('kept')],
    'a function that runs as its owner': () => [`SELECT as_owner($$${others('pg_stat_activity')}$$)`],
    'a role that it is not': () => ['SET LOCAL ROLE NONE', others('pg_stat_activity')],
  };

  it.each(Object.entries(ofOthers))('shows nothing of others by %s', async (_way, sql) => {
    // There is something to see.
    const { rows } = await scene.superuser.query('SELECT count(*)::int AS n FROM pg_stat_activity WHERE usename = $1', [scene.victim.id]);
    expect(rows[0].n).toBeGreaterThan(0);
    for (const door of Object.values(DOORS)) {
      expect(await door(scene.service, scene.intruder, sql())).toMatchObject({ sqlstate: '00000', rows: [['0']] });
    }
  });

  it('tells a condition of the intruder of its own sessions only', async () => {
    const reply = await DOORS.wire(scene.service, scene.intruder, 'SELECT count(*) FROM pg_stat_activity WHERE tell(usename::text)');
    expect(reply.message).toBe(`told: ${scene.intruder.id}`);
  });

  it.each([
    'SELECT * FROM postern_pg_stat_activity',
    'SELECT * FROM postern_pg_stat_database',
    'SELECT * FROM pg_stat_get_activity(NULL)',
    'SELECT pg_stat_get_db_numbackends(1)',
    'SET ROLE postern_statistics',
    'ALTER FUNCTION pg_catalog.postern_own_pg_stat_activity() SECURITY INVOKER',
    'CREATE OR REPLACE VIEW pg_catalog.pg_stat_activity AS SELECT 1 AS pid',
  ])('keeps what is under it closed: %s', async (sql) => {
    for (const door of Object.values(DOORS)) expect(await door(scene.service, scene.intruder, sql)).toMatchObject({ sqlstate: '42501' });
  });
});
