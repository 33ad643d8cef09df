import { describe, expect, it } from 'vitest';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { marked, SCHEMA, TARGET } from './marked.ts';

const changes = {
  'a qualifier in a query': [
    `SELECT * FROM «public».users`,
    `select * from «public».users`,
    `SELECT * FROM «PUBLIC».users`,
    `SELECT * FROM «Public».Users`,
    `SELECT * FROM "«public»"."User"`,
    `SELECT * FROM"«public»"."User"WHERE"id"=$1`,
    `SELECT * FROM «public»."User"`,
    `SELECT * FROM "«public»".users`,
    `SELECT * FROM «public» . users`,
    `SELECT * FROM «public»/* the schema */./* the table */users`,
    `SELECT * FROM «public»\n  -- public.users is big\n  .users`,
    `SELECT * FROM U&"«public»".users`,
    `SELECT * FROM U&"«p\\0075blic»".users, «public».teams`,
    `SELECT * FROM U&"«publ\\0069c»".users`,
    `SELECT * FROM U&"«p!0075blic»" UESCAPE '!' .users, «public».teams`,
    `SELECT «public».users.id, «public».users.* FROM «public».users`,
    `SELECT "«public»"."User"."id" FROM "«public»"."User" WHERE ("«public»"."User"."email" = $1 AND 1=1) LIMIT $2 OFFSET $3`,
    `SELECT «public».full_name(u) FROM users u`,
    `SELECT * FROM a, «public».b, "«public»"."c" CROSS JOIN «public».d`,
    `SELECT * FROM «public».a JOIN «public».b ON «public».a.id = «public».b.id`,
    `SELECT * FROM users WHERE public AND id IN (SELECT user_id FROM «public».members)`,
    `WITH x AS (SELECT 1 FROM «public».a) SELECT * FROM x, «public».b`,
    `SELECT 1;SELECT * FROM «public».a;SELECT 2;TABLE «public».b;`,
    `EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM «public».a`,
    `SELECT ROW(«public».f(1)).x, ($1)::int, $1 + «public».g($2)`,
    `SELECT * FROM «public».näme WHERE "naïve public.x" = 'public.ö'`,
    `SELECT '😀 public.a', * FROM «public».a`,
    `SELECT E'it\\'s public.a', * FROM «public».a`,
    `SELECT 'a\\', * FROM «public».a -- '`,
    `SELECT B'01', X'1F', N'public.a' FROM «public».a`,
    `SELECT 1 /* public.a /* public.b */ public.c */ FROM «public».d`,
    `SELECT $tag$public.a $ $other$ $$ $tag$, x FROM «public».a`,
    `SELECT a$public$b FROM «public».a`,
    `SELECT 'public.a'\n  'public.b' FROM «public».a`,
    `DECLARE c CURSOR FOR SELECT * FROM «public».a`,
    `LOCK TABLE «public».a IN ACCESS SHARE MODE`,
    `VALUES («public».f(1)), («public».f(2))`,
    `SELECT * FROM ONLY «public».a TABLESAMPLE «public».system(10)`,
  ],
  'a qualifier where data is written': [
    `INSERT INTO «public».users (public, "public") VALUES ('public', 'public.users') RETURNING public, id`,
    `INSERT INTO "«public»"."User" ("id","email") VALUES ($1,$2), ($3,$4) RETURNING "«public»"."User"."id"`,
    `UPDATE «public».users SET public = 'public' WHERE public`,
    `UPDATE "«public»"."User" SET "public" = $1 WHERE ("«public»"."User"."id" = $2 AND 1=1)`,
    `DELETE FROM ONLY «public».users USING «public».teams WHERE public`,
    `MERGE INTO «public».a USING «public».b ON a.id = b.id WHEN MATCHED THEN UPDATE SET search_path = public`,
    `INSERT INTO «public».a SELECT * FROM «public».b ON CONFLICT (id) DO UPDATE SET n = «public».bump(a.n)`,
    `COPY «public».users (id, public) FROM stdin`,
    `COPY "«public»"."User" FROM STDIN WITH (FORMAT csv, NULL 'public.x')`,
    `COPY (SELECT * FROM «public».users) TO STDOUT`,
    `TRUNCATE «public».a, «public».b RESTART IDENTITY`,
    `PREPARE p (int) AS SELECT * FROM «public».a WHERE id = $1`,
  ],
  'a qualifier in the definition of objects': [
    `CREATE TABLE «public».public (public «public».mood DEFAULT 'public'::«public».mood, tags «public».mood[])`,
    `CREATE TYPE "«public»"."role_enum" AS ENUM('public', 'private')`,
    `CREATE DOMAIN «public».email AS «public».citext CHECK (VALUE ~ '^public')`,
    `ALTER TABLE ONLY «public».a ADD CONSTRAINT a_fk FOREIGN KEY (b) REFERENCES «public».b(id)`,
    `ALTER TABLE «public».measures ATTACH PARTITION «public».measures_2024 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')`,
    `ALTER SEQUENCE «public».a_id_seq OWNED BY «public».a.id`,
    `CREATE UNIQUE INDEX i ON «public».a USING btree (lower(email) «public».my_ops) WHERE public`,
    `CREATE INDEX ON «public».a («public».slug(title))`,
    `ALTER INDEX «public».i ATTACH PARTITION «public».j`,
    `CREATE OR REPLACE VIEW «public».v AS SELECT u.public FROM «public».users u`,
    `CREATE MATERIALIZED VIEW «public».mv AS SELECT 1; REFRESH MATERIALIZED VIEW CONCURRENTLY «public».mv`,
    `CREATE TRIGGER t BEFORE INSERT OR UPDATE ON «public».a FOR EACH ROW EXECUTE FUNCTION «public».touch('public.a')`,
    `CREATE RULE r AS ON INSERT TO «public».a DO ALSO INSERT INTO «public».log VALUES ('public')`,
    `CREATE POLICY p ON «public».a FOR SELECT TO PUBLIC USING («public».may_read(id))`,
    `CREATE AGGREGATE «public».total(int) (SFUNC = «public».add, STYPE = int)`,
    `CREATE OPERATOR «public».+++ (LEFTARG = «public».point3, FUNCTION = «public».add3, COMMUTATOR = OPERATOR(«public».+++))`,
    `SELECT a OPERATOR(«public».*) b, c OPERATOR ( «public» . || ) d FROM «public».t`,
    `ALTER OPERATOR «public».* (int, int) OWNER TO me; DROP OPERATOR IF EXISTS «public».* (int, int)`,
    `CREATE COLLATION «public».nd (provider = icu, locale = 'und'); SELECT a COLLATE «public».nd FROM t`,
    `CREATE STATISTICS «public».s ON a, b FROM «public».t`,
    `CREATE CAST («public».a AS «public».b) WITH FUNCTION «public».to_b(«public».a)`,
    `COMMENT ON COLUMN «public».users.public IS 'public.users.public is public'`,
    `ALTER TYPE «public».mood ADD VALUE 'public'`,
    `DROP TABLE IF EXISTS «public».a, "«public»"."b" CASCADE`,
    `ALTER FUNCTION «public».f(«public».mood) OWNER TO me`,
    `CREATE TABLE t (LIKE «public».a INCLUDING ALL) INHERITS («public».b)`,
    `CREATE TABLE t (price «public».money2 GENERATED ALWAYS AS («public».f(x)) STORED)`,
    `CREATE FUNCTION «public».f() RETURNS SETOF «public».users LANGUAGE sql BEGIN ATOMIC SELECT * FROM «public».users; END`,
    `GRANT SELECT, UPDATE ON TABLE «public».a TO PUBLIC; REVOKE ALL ON «public».b, «public».c FROM PUBLIC`,
    `GRANT EXECUTE ON FUNCTION «public».f(«public».mood) TO "public"`,
    `ALTER TABLE t ADD COLUMN schema «public».mood, ADD schema «public».mood`,
    `SELECT 'sad'::«public».mood, CAST($1 AS «public».mood[]), «public».mood 'ok'`,
  ],
  'the schema itself': [
    `CREATE SCHEMA «public» CREATE TABLE t ()`,
    `DROP SCHEMA IF EXISTS a, «public», "«public»" CASCADE`,
    `ALTER SCHEMA «public» OWNER TO me`,
    `COMMENT ON SCHEMA «public» IS 'the public schema'`,
    `GRANT USAGE ON SCHEMA «public» TO PUBLIC`,
    `GRANT ALL ON SCHEMA other, "«public»", «PUBLIC» TO PUBLIC`,
    `REVOKE USAGE ON SCHEMA «public» FROM PUBLIC`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA «public», other TO PUBLIC`,
    `ALTER DEFAULT PRIVILEGES FOR ROLE me IN SCHEMA «public» GRANT SELECT ON TABLES TO PUBLIC`,
    `ALTER TABLE other.t SET SCHEMA «public»`,
    `ALTER EXTENSION citext SET SCHEMA «public»`,
    `CREATE EXTENSION IF NOT EXISTS "uuid-ossp" WITH SCHEMA «public»`,
    `CREATE EXTENSION hstore SCHEMA «public» CASCADE`,
    `CREATE EXTENSION hstore VERSION '1.8' SCHEMA «public»`,
    `CREATE PUBLICATION p FOR TABLES IN SCHEMA «public», CURRENT_SCHEMA`,
    `REINDEX SCHEMA CONCURRENTLY «public»`,
    `REINDEX (VERBOSE) SCHEMA «public»`,
    `SECURITY LABEL ON SCHEMA «public» IS 'public'`,
  ],
};

const stays = {
  'data and columns': [
    `SELECT 'public', "public", public FROM t`,
    `SELECT 'public.users', $$public.users$$, E'public.users', U&'public.users'`,
    `SELECT n.nspname FROM pg_namespace n WHERE relname = ANY('{public}')`,
    `SELECT t.public, t."public", t . public FROM t`,
    `SELECT (t.public).x, (public).y FROM t`,
    `SELECT data->'public', data->>'public.users', data @> '{"public.a": true}'::jsonb FROM t`,
    `SELECT jsonb_build_object('public', 'public.users'), format('%I.%I', 'public', 'users')`,
    `CREATE TABLE t (public boolean NOT NULL DEFAULT false, "public.users" text)`,
    `ALTER TABLE t RENAME COLUMN public TO "Public"; ALTER TABLE t RENAME TO public`,
    `SELECT x AS public, y public FROM t ORDER BY public, "public" DESC`,
    `INSERT INTO t (a, public) VALUES ('public', 'SET search_path = public')`,
    `UPDATE t SET search_path = public, schema = public WHERE public::text = 'x'`,
    `INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET search_path = public`,
    `SELECT schema public FROM t`,
    `SELECT "Public".x, "PUBLIC".y, "pub""lic".z FROM "Public", "PUBLIC", "pub""lic"`,
    `SELECT publication.x, republic.y, public_.z, _public.z, públic.x FROM t`,
    `SELECT x.public.y.z, other.public.col FROM x`,
    `FETCH public; CLOSE public; DEALLOCATE public; SAVEPOINT public; RELEASE public`,
    `SELECT 'a' AS "x", 1 -- public.users`,
    `SELECT 1 /* public.users */`,
    `SELECT 'it''s public.users', 'x\\', ' public.users'`,
    `COMMENT ON TABLE t IS 'see public.users'`,
    `COPY t FROM stdin WITH DELIMITER AS ',' NULL AS 'public.x'`,
    `CREATE FUNCTION f() RETURNS int LANGUAGE plperl AS $$ return public.x; $$`,
    `CREATE FUNCTION f() RETURNS int AS $$ public.x $$ IMMUTABLE LANGUAGE 'plv8'`,
    `DO LANGUAGE plpython3u $$ public.x $$`,
    `IMPORT FOREIGN SCHEMA public FROM SERVER s INTO other`,
  ],
  'the group of all roles': [
    `GRANT SELECT ON t TO PUBLIC`,
    `GRANT ALL ON FUNCTION f() TO public WITH GRANT OPTION`,
    `REVOKE ALL ON DATABASE d FROM PUBLIC, me`,
    `ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM public`,
    `CREATE POLICY p ON t TO PUBLIC USING (true)`,
  ],
  'the row of a relation called public': [
    `SELECT public.* FROM users AS public`,
    `SELECT count(public.*) FROM public`,
    `SELECT public.id FROM users AS public WHERE public.id = 1`,
    `SELECT public.id, "public"."name" FROM users public ORDER BY public.id`,
    `SELECT public.id FROM public`,
    `WITH public AS (SELECT 1 AS id) SELECT public.id FROM public`,
    `WITH a AS (SELECT 1), public (id) AS (SELECT 2) SELECT public.id FROM a, public`,
    `UPDATE public SET a = 1 WHERE public.id = 1`,
    `SELECT public.id FROM a JOIN (SELECT 1 AS id) AS public ON public.id = a.id`,
    `INSERT INTO public (id) VALUES (1) RETURNING public.id`,
    `CREATE VIEW v AS SELECT public.id FROM users public`,
    `UPDATE t SET a = 1 RETURNING WITH (OLD AS public) public.a, a`,
  ],
};

describe.each(Object.entries(changes))('rewrites %s', (_, cases) => {
  it.each(cases)('%s', (text) => {
    const { sent, wanted } = marked(text);
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), TARGET).sql.toString()).toBe(wanted);
  });
});

describe.each(Object.entries(stays))('does not touch %s', (_, cases) => {
  it.each(cases)('%s', (text) => {
    const bytes = Buffer.from(text);
    expect(rewriteSql(text, TARGET)).toMatchObject({ sql: text, edits: [] });
    expect(rewriteSql(bytes, TARGET).sql).toBe(bytes);
  });
});

describe('a relation called public', () => {
  it.each([
    `SELECT public.id, «public».f(public.id), «public».t.x FROM «public».users AS public`,
    `SELECT public.id FROM «public».a AS public; SELECT «public».id FROM «public».b`,
    `SELECT x AS public FROM «public».users WHERE «public».may(x)`,
    `SELECT extract(epoch FROM «public».now()), a IS DISTINCT FROM public, «public».x FROM t`,
    `CREATE POLICY p ON «public».t FOR UPDATE TO PUBLIC USING (EXISTS (SELECT FROM «public».u))`,
    `SELECT «public».t.id FROM «public».t FOR UPDATE`,
    `REVOKE ALL ON «public».users FROM PUBLIC`,
    `SELECT public.id, x::«public».mood FROM («public».teams public LEFT JOIN «public».users ON ((users.team = public.id)))`,
    `CREATE VIEW «public».v AS SELECT public.id FROM «public».a, «public».b public, («public».c JOIN «public».d ON public.x) WHERE public.y`,
    `SELECT CAST(public.a AS «public».mood), public.b COLLATE «public».german FROM t AS public`,
    `INSERT INTO «public».t (id, public) SELECT b.x FROM a, «public».b`,
    `SELECT 1 FROM a JOIN b USING (public), «public».c`,
    `UPDATE «public».t SET a = 1 RETURNING WITH (OLD AS public, NEW AS n) public.a, n.a, «public».f(n.a)`,
    `UPDATE «public».t SET a = 1 RETURNING WITH (OLD AS o) public, «public».x`,
    `SELECT 1 FROM unnest($1) AS t (public), «public».c`,
    `SELECT 1 FROM (SELECT x AS public FROM y) t, «public».c`,
  ])('and the schema in one statement: %s', (text) => {
    const { sent, wanted } = marked(text);
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
  });
});

describe('the name of the database', () => {
  const target = { ...TARGET, database: 'shared' };

  it.each([
    [`SELECT * FROM ${SCHEMA}.public.users`, `SELECT * FROM shared.${SCHEMA}.users`],
    [`SELECT * FROM "${SCHEMA}"."public"."users"`, `SELECT * FROM "shared"."${SCHEMA}"."users"`],
    [`SELECT * FROM shared.public.users`, `SELECT * FROM shared.${SCHEMA}.users`],
    [`SELECT a.public.users, x.${SCHEMA}.public.y FROM a`, `SELECT a.public.users, x.${SCHEMA}.public.y FROM a`],
  ])('%s', (sent, wanted) => expect(rewriteSql(sent, target).sql).toBe(wanted));
});

describe('CREATE SCHEMA IF NOT EXISTS public', () => {
  const notice = `DO 'BEGIN RAISE NOTICE USING ERRCODE = ''duplicate_schema'', MESSAGE = ''schema "public" already exists, skipping''; END'`;

  it.each([
    [`CREATE SCHEMA IF NOT EXISTS public`, notice],
    [`-- CreateSchema\nCREATE SCHEMA IF NOT EXISTS "public";\n\nSELECT 1`, `-- CreateSchema\n${notice};\n\nSELECT 1`],
    [`create schema if not exists PUBLIC authorization CURRENT_USER;`, `${notice};`],
    [`DO $$ BEGIN CREATE SCHEMA IF NOT EXISTS public; END $$`, `DO $$ BEGIN ${notice}; END $$`],
    [`DO 'BEGIN CREATE SCHEMA IF NOT EXISTS public; END'`, `DO 'BEGIN ${notice.replaceAll("'", "''")}; END'`],
  ])('says that it is there: %s', (sent, wanted) => expect(rewriteSql(sent, TARGET).sql).toBe(wanted));

  it('with tables in it stays what it is', () => {
    const { sent, wanted } = marked('CREATE SCHEMA IF NOT EXISTS «public» CREATE TABLE t ()');
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
  });
});

describe('parentheses', () => {
  it.each([
    [1_000, true],
    [1_000_000, false],
  ])('%i of them, one in the other: %s', (depth, isRewritten) => {
    const { edits } = rewriteSql(`${'('.repeat(depth)}SELECT * FROM public.a`, TARGET);
    expect(edits.length > 0).toBe(isRewritten);
  });

  it('keep nothing of what is behind them from being rewritten, once they are closed', () => {
    expect(rewriteSql(`${'(1)+'.repeat(100_000)}public.f()`, TARGET).edits).toHaveLength(1);
  });
});
