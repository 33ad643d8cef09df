import { describe, expect, it } from 'vitest';
import type { Placement } from '../../../src/catalog/organization.ts';
import { allForClone, forClone } from '../../../src/moving/clone-names.ts';

const placement = (id: string): Placement => ({ kind: 'schema', cluster: 'default', database: 'postern_shared', schema: id, role: id });
const FROM = placement('org_k3v9x0q2m7t1');
const TO = placement('org_c10nec10ne00');

/** `ORG` is the organization's id, and `«ORG»` becomes the clone's. */
const definitions = {
  'identifiers are names': [
    'CREATE TABLE «ORG».users («ORG» integer, "of «ORG»!" integer, "«ORG»" text COLLATE «ORG».german)',
    'GRANT SELECT ON TABLE «ORG».users TO «ORG»_read',
    'GRANT SELECT, DELETE ON TABLE «ORG».users TO «ORG»_data',
    'CREATE POLICY own ON «ORG».users TO «ORG», «ORG»_read USING (true)',
    'ALTER DEFAULT PRIVILEGES FOR ROLE "«ORG»" GRANT SELECT ON TABLES TO "«ORG»_read"',
    'CREATE TYPE «ORG».range AS RANGE (subtype = «ORG».amount, multirange_type_name = «ORG».ranges)',
    'CREATE TABLE «ORG»."ORG_notes" ("xORG" integer, "äORG" integer, ORG1 integer)',
    'CREATE VIEW «ORG».v AS SELECT a.* FROM «ORG»."a""«ORG»" a WHERE (a.n OPERATOR(«ORG».=) 1)',
  ],
  'literals of data are values': [
    "CREATE TYPE «ORG».kind AS ENUM ('ORG', 'of ORG')",
    "CREATE TABLE «ORG».t (a text DEFAULT 'ORG'::text, b «ORG».kind DEFAULT 'ORG'::«ORG».kind, CHECK ((a = 'ORG'::text)))",
    "CREATE DOMAIN «ORG».d AS text CONSTRAINT c CHECK ((VALUE = ANY (ARRAY['ORG'::text, 'ORG.t'::text])))",
    "CREATE TABLE «ORG».t (a text GENERATED ALWAYS AS (('ORG.t'::text || b)) STORED)",
    "ALTER TABLE ONLY «ORG».t ATTACH PARTITION «ORG».p FOR VALUES IN ('ORG')",
    "COMMENT ON TABLE «ORG».t IS 'of ORG, see ORG.t'",
    "COMMENT ON COLUMN «ORG».t.«ORG» IS 'ORG'",
    "CREATE VIEW «ORG».v AS SELECT 'ORG'::text AS a, E'ORG\\\\'::text AS b",
    `CREATE POLICY own ON «ORG».t USING (((a = 'ORG'::text) OR ("user" = 'ORG'::text) OR ((t."user")::text = 'ORG'::text)))`,
    "CREATE TRIGGER tg BEFORE INSERT ON «ORG».t FOR EACH ROW EXECUTE FUNCTION «ORG».f('ORG')",
    "CREATE AGGREGATE «ORG».a(text) (SFUNC = «ORG».f, STYPE = text, INITCOND = 'ORG')",
    `CREATE FUNCTION «ORG».f(a text DEFAULT 'ORG'::text) RETURNS text LANGUAGE sql SET application_name TO 'ORG' AS $$ SELECT 'ORG' $$`,
    `CREATE FUNCTION «ORG».f() RETURNS text LANGUAGE plpgsql AS $_$ BEGIN -- ORG.t
       IF kind = 'ORG' OR t.user = 'ORG' THEN RAISE 'ORG.t'; END IF; RETURN $$ORG$$ || format('%s', 'ORG.t'); END $_$`,
    `CREATE FUNCTION «ORG».f() RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT 'ORG'::text FROM «ORG».t; END`,
    "CREATE FUNCTION «ORG».f() RETURNS text LANGUAGE plperl AS $$ return 'ORG.t' . ORG $$",
  ],
  'literals with names are names': [
    `ALTER TABLE «ORG».t ALTER COLUMN id SET DEFAULT nextval('«ORG».t_id_seq'::regclass)`,
    `CREATE VIEW «ORG».v AS SELECT '"«ORG»"."T"'::regclass AS a, to_regclass('«ORG».t'::text) AS b, '«ORG»'::regnamespace AS c`,
    `CREATE VIEW «ORG».v AS SELECT tablename FROM pg_tables WHERE ((schemaname = '«ORG»'::name) AND (tablename = 'other'::name))`,
    `CREATE VIEW «ORG».v AS SELECT 1 FROM information_schema.tables t
       WHERE (((t.table_schema)::name = '«ORG»'::name) OR ((t.table_schema)::name = ANY (ARRAY['«ORG»'::name, 'other'::name])))`,
    `CREATE VIEW «ORG».v AS SELECT pg_has_role('«ORG»'::name, 'USAGE'::text) AS a, '«ORG»_read'::regrole AS b`,
    `CREATE POLICY own ON «ORG».t USING (((CURRENT_USER = '«ORG»'::name) OR ((SESSION_USER)::text = '«ORG»_read'::text)))`,
    `CREATE TRIGGER tg BEFORE INSERT ON «ORG».t FOR EACH ROW EXECUTE FUNCTION tsvector_update_trigger('v', '«ORG».english', 'a')`,
    `CREATE FUNCTION «ORG».f() RETURNS void LANGUAGE sql SET search_path TO '«ORG»', 'pg_temp' SET role TO '«ORG»' AS $$ SELECT 1 $$`,
    `CREATE FUNCTION «ORG».f() RETURNS bigint LANGUAGE sql AS $$ SELECT count("«ORG»".id) FROM «ORG».«ORG» WHERE a <> 'ORG' $$`,
    `CREATE FUNCTION «ORG».f() RETURNS void LANGUAGE plpgsql AS $_$ BEGIN
       IF session_user <> '«ORG»' OR EXISTS (SELECT FROM pg_tables WHERE schemaname = '«ORG»') THEN PERFORM nextval('«ORG».s'); END IF;
       EXECUTE 'INSERT INTO «ORG».t VALUES (''ORG'')'; EXECUTE format('SELECT %L FROM «ORG».t', 'ORG');
       PERFORM set_config('search_path', '«ORG», pg_temp', true), set_config('application_name', 'ORG', true);
       SET LOCAL search_path = «ORG», pg_temp; SET SCHEMA '«ORG»'; GRANT SELECT ON t TO «ORG»_read; END $_$`,
  ],
} as const;

describe.each(Object.entries(definitions))('in a clone, %s', (_, texts) => {
  it.each(texts)('%s', async (text) => {
    const definition = text.replaceAll('«ORG»', FROM.role).replaceAll('ORG', FROM.role);
    const wanted = text.replaceAll('«ORG»', TO.role).replaceAll('ORG', FROM.role);
    expect(forClone(definition, FROM, TO)).toBe(wanted);
    expect(await allForClone([definition, `${definition} -- ä€𝄞`], FROM, TO)).toEqual([wanted, `${wanted} -- ä€𝄞`]);
  });
});

it('a long definition is read in parts', async () => {
  const text = (id: string) => `CREATE VIEW ${id}.v AS SELECT ${`'ä${FROM.role}'::text, ${id}.f(), `.repeat(20_000)} 1`;
  expect(await allForClone([text(FROM.role)], FROM, TO)).toEqual([text(TO.role)]);
});
