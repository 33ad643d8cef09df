import { describe, expect, it } from 'vitest';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { marked, TARGET } from './marked.ts';

const changes = {
  'literals that are cast to names': [
    `SELECT '«public».users'::regclass`,
    `SELECT '"«public»"."User"'::regclass::oid`,
    `SELECT '«public».users' :: pg_catalog.regclass`,
    `SELECT '«public».users'::text::regclass, ('«public».users'::text)::regclass`,
    `SELECT ('«public».users')::regclass, (('«public».users'))::regclass`,
    `SELECT CAST('«public».users' AS regclass), CAST( '«public».mood' AS pg_catalog.regtype )`,
    `SELECT regclass '«public».users', pg_catalog.regtype '«public».mood'`,
    `SELECT '{«public».a,«public».b}'::regclass[]`,
    `SELECT '«public».f(«public».mood, integer)'::regprocedure, '«public».f'::regproc`,
    `SELECT '«public».+(int,int)'::regoperator, '«public».mood[]'::regtype`,
    `SELECT '«public»'::regnamespace, '"«public»"'::regnamespace, '«PUBLIC»'::regnamespace`,
    `SELECT E'«public».users'::regclass, $$«public».users$$::regclass, U&'«public».users'::regclass`,
    `SELECT E'"«public»".\\x22User\\x22'::regclass, E'«p\\165blic».users'::regclass, '«public».users'::regclass`,
    `SELECT 'public.a' = 'public.b' OR oid = '«public».c'::regclass`,
    `ALTER TABLE t ALTER c SET DEFAULT nextval('«public».t_c_seq'::regclass)`,
  ],
  'literals that are arguments of a function': [
    `SELECT nextval('«public».s'), currval('«public».s'), setval('«public».s', 3, true)`,
    `SELECT pg_catalog.setval('«public».users_id_seq', 1, false)`,
    `SELECT nextval('"«public»"."User_id_seq"'), nextval (('«public».s'::text)::regclass)`,
    `SELECT pg_get_serial_sequence('«public».users', 'public.id'), pg_get_serial_sequence('"«public»"."User"', 'id')`,
    `SELECT to_regclass('«public».users'), to_regtype('«public».mood[]'), to_regproc('«public».f'), to_regnamespace('«public»')`,
    `SELECT pg_size_pretty(pg_total_relation_size('«public».users'))`,
    `SELECT has_table_privilege('«public».users', 'SELECT'), has_table_privilege('me', '«public».users', 'SELECT')`,
    `SELECT has_schema_privilege('«public»', 'CREATE'), has_schema_privilege(current_user, '«public»', 'USAGE')`,
    `SELECT to_tsvector('«public».english', body), to_tsvector('public.english is data')`,
    `CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION tsvector_update_trigger(v, '«public».english', body)`,
    `SELECT "nextval"('«public».s'), "pg_catalog"."setval"('«public».s', 1)`,
    `SELECT NEXTVAL ( /* public.s */ '«public».s' )`,
    `SELECT nextval('«public».' || $1)`,
    `INSERT INTO t VALUES (nextval('«public».s'), 'public.s', length('public.s'))`,
    `SELECT pg_restore_relation_stats('version', 180000, 'schemaname', '«public»', 'relname', 'public', 'relpages', 1)`,
    `SELECT pg_restore_attribute_stats('relname', 'schemaname', 'schemaname', '«public»', 'attname', 'public'), pg_clear_relation_stats('«public»', 'public')`,
  ],
  'literals that are compared with the name of a schema': [
    `SELECT 1 FROM pg_namespace WHERE nspname = '«public»' AND 'public' = x`,
    `SELECT table_name FROM information_schema.tables WHERE table_schema = '«public»' AND table_name = 'public'`,
    `SELECT 1 FROM information_schema.tables t WHERE "t"."table_schema"='«public»' AND t.table_schema <> '«public»'`,
    `SELECT 1 FROM pg_class c, pg_namespace n WHERE n.nspname IN ('«public»', 'other') AND relname IN ('public')`,
    `SELECT 1 FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', '«public»') OR schemaname NOT LIKE '«public»'`,
    `SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname LIKE '«public»' AND n.nspname != E'«public»'`,
    `SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.~) '^(«public»)$' COLLATE pg_catalog.default`,
    `SELECT 1 FROM pg_namespace WHERE nspname = ANY (ARRAY['«public»', 'other']) OR nspname <> ALL ('{«public»,"«public»",publics}'::name[])`,
    `SELECT 1 FROM pg_namespace WHERE nspname ILIKE '«pub%»' OR nspname ~ '^(«public»|other)$' OR '«public»' = nspname OR '«public»' <> x.nspname`,
    `SELECT 1 FROM pg_tables WHERE (schemaname, tablename) = ('«public»', 'public') OR (tablename, t.schemaname) IN (('public', '«public»'))`,
    `SELECT 1 FROM pg_tables t WHERE ROW(t.schemaname, t.tablename) <> ROW('«public»', 'public') AND (schemaname, x) IN (VALUES ('«public»', 'public'))`,
    `SELECT current_schema() = '«public»', current_schema <> '«public»', pg_catalog.current_schema() = '«public»'`,
    `DO $$ BEGIN IF EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = '«public»') THEN PERFORM 'public'; END IF; END $$`,
  ],
  'bodies of functions': [
    `CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT id FROM «public».users'`,
    `CREATE FUNCTION f() RETURNS int AS $$ SELECT id FROM «public».users WHERE x = 'public.x' $$ LANGUAGE sql`,
    `CREATE FUNCTION f() RETURNS int AS $f$ SELECT id FROM «public».users $f$ STABLE LANGUAGE 'plpgsql'`,
    `CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ DECLARE u «public».users%ROWTYPE; BEGIN CALL «public».q(); END $$`,
    `CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT ''public.x'' FROM «public».users WHERE "a" = ''it''''s'' AND «public».g()'`,
    `CREATE FUNCTION f() RETURNS text LANGUAGE sql AS E'SELECT \\'public.x\\' FROM «public».users\\nWHERE «public».g()'`,
    `CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT nextval(''«public».s'') FROM «public».users'`,
    `CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT 1'\n  ' FROM «public».users'`,
    `CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = «public», pg_temp AS $$ SELECT * FROM «public».t $$`,
    `CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path TO '«public»', 'pg_temp' AS $_$ SELECT $1 FROM «public».t $_$; SELECT '«public».t'::regclass`,
    `DO $$ BEGIN PERFORM 1 FROM «public».users; SET LOCAL search_path = «public»; END $$`,
    `DO LANGUAGE plpgsql 'BEGIN DELETE FROM «public».users WHERE name = ''public.x''; END'`,
    `DO $a$ BEGIN EXECUTE $b$ DO $c$ BEGIN DROP TABLE «public».x; END $c$ $b$; END $a$`,
    `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.public := 'public.x'; RETURN NEW; END $$; TABLE «public».x`,
    `DO $$ BEGIN FOR r IN SELECT * FROM «public».a LOOP INSERT INTO «public».b VALUES (r.public); END LOOP; END $$`,
    `DO $$ BEGIN FOR i IN 1..10 LOOP CALL «public».p(i); END LOOP; END $$`,
  ],
  'SQL that a function executes': [
    `DO $$ BEGIN EXECUTE 'UPDATE «public».audit SET n = ''public.n'''; END $$`,
    `DO $$ BEGIN EXECUTE 'DROP TABLE «public».' || quote_ident(t); EXECUTE ('SELECT ' || x || ' FROM «public».t'); END $$`,
    `DO $$ BEGIN EXECUTE format('CREATE TABLE «public».%I (LIKE «public».%I)', a, 'public.b') USING 'public.x'; END $$`,
    `DO $$ BEGIN RETURN QUERY EXECUTE 'SELECT * FROM «public».t WHERE x = $1' USING 'public.y'; END $$`,
    `DO $$ BEGIN FOR r IN EXECUTE 'SELECT * FROM «public».t' LOOP x := 'public.y'; END LOOP; END $$`,
    `DO $$ BEGIN EXECUTE 'SELECT count(*) FROM «public».t' INTO n; x := 'public.t'; END $$`,
    `DO $$ BEGIN EXECUTE 'INSERT INTO «public».t VALUES (' || quote_literal('public.x') || ')'; END $$`,
    `DO 'BEGIN EXECUTE ''SELECT ''''public.x'''' FROM «public».t''; END'`,
  ],
};

const stays = [
  `SELECT 1 FROM tenants WHERE schema_name = 'public' AND table_schema IN ('public')`,
  `INSERT INTO information_schema_copy (table_schema) VALUES ('public')`,
  `SELECT 1 FROM pg_namespace WHERE nspname LIKE 'p%' OR nspname LIKE 'pub%x' OR nspname ~ 'publics' OR (nspname, x) = f('public', 'public')`,
  `INSERT INTO t (a, nspname) VALUES ('public', 'public'); SELECT 1 FROM t WHERE (a, table_schema) = ('public', 'public')`,
  `SELECT 1 FROM pg_namespace WHERE nspname = 'publics' AND oid::text = 'public' AND f(nspname, 'public')`,
  `SELECT format('SELECT * FROM public.%I', 'x'), quote_literal('public.x')`,
  `SELECT 'public.users'::text, CAST('public.users' AS text), text 'public.users', 'public'::name`,
  `SELECT length('public.users'), lower('public.s')::text, my.f('public.x')::regtype`,
  `SELECT setval(s, 'public.x'), set_config('public.x', 'public.y', false), set_config('role', 'public', false)`,
  `SELECT has_table_privilege('public', 't', 'SELECT')`,
  `SELECT CASE WHEN x THEN 'public.a' ELSE 'public.b' END AS regclass`,
  `EXECUTE p('public.users'); PREPARE p AS SELECT 'public.users'`,
  `DO $$ BEGIN x := 'SELECT * FROM public.t'; EXECUTE x; RAISE NOTICE 'public.t is %', x; END $$`,
  `DO $$ BEGIN EXECUTE x USING 'public.a'; PERFORM f('public.t'); END $$`,
  `CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW EXECUTE PROCEDURE f('public.a', 'public')`,
  `GRANT EXECUTE ON FUNCTION f(text) TO PUBLIC`,
];

describe.each(Object.entries(changes))('rewrites %s', (_, cases) => {
  it.each(cases)('%s', (text) => {
    const { sent, wanted } = marked(text);
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), TARGET).sql.toString()).toBe(wanted);
  });
});

describe('does not touch literals that are data', () => {
  it.each(stays)('%s', (text) => expect(rewriteSql(text, TARGET)).toMatchObject({ sql: text, edits: [] }));
});

describe('standard_conforming_strings', () => {
  const text = marked(`SELECT 'it\\'s public.x', '«public».users'::regclass`);

  it('off lets a backslash escape in any string', () => {
    expect(rewriteSql(text.sent, TARGET, { standardConformingStrings: false }).sql).toBe(text.wanted);
  });

  it('on does not', () => {
    expect(rewriteSql(text.sent, TARGET, { standardConformingStrings: true }).sql).not.toBe(text.wanted);
  });

  it('is read off where a relation is named public, too', () => {
    const { sent, wanted } = marked(`SELECT 'it\\'s', public.id FROM users AS public WHERE a = '\\' FROM \\''`);
    expect(rewriteSql(sent, TARGET, { standardConformingStrings: false }).sql).toBe(wanted);
  });

  it.each([
    [
      `CREATE FUNCTION f() RETURNS text SET standard_conforming_strings = off AS $$ SELECT 'it\\'s public.x', v FROM «public».t $$ LANGUAGE sql`,
    ],
    [
      `CREATE FUNCTION f() RETURNS text AS $$ SELECT 'it\\'s public.x', v FROM «public».t $$ LANGUAGE sql SET standard_conforming_strings TO 'off'`,
    ],
    [`CREATE FUNCTION f() RETURNS text SET "standard_conforming_strings" = f AS $$ SELECT 'it\\'s public.x' $$; TABLE «public».t`],
    [`SET LOCAL standard_conforming_strings = off; DO $$ BEGIN PERFORM 'it\\'s public.x', v FROM «public».t; END $$`],
  ])('of a function or of an earlier statement holds for the SQL in literals: %s', (marks) => {
    const { sent, wanted } = marked(marks);
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
  });

  it('makes no difference to a function that sets it on', () => {
    const { sent, wanted } = marked(`CREATE FUNCTION f() SET standard_conforming_strings = on AS $$ SELECT '\\', v FROM «public».t $$`);
    expect(rewriteSql(sent, TARGET, { standardConformingStrings: false }).sql).toBe(wanted);
  });
});

describe('bodies in bodies', () => {
  const nested = (depth: number, body: string): string => (depth === 0 ? body : `DO $q${depth}$ ${nested(depth - 1, body)} $q${depth}$`);

  it('are rewritten eight deep', () => {
    const { sent, wanted } = marked(nested(8, 'TABLE «public».t'));
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
  });

  it('are left alone deeper', () => {
    const { sent } = marked(nested(9, 'TABLE «public».t'));
    expect(rewriteSql(sent, TARGET).sql).toBe(sent);
  });
});
