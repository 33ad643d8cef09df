/** What an organization has before it is over its quota. The names need no schema, so that they are the same at both doors and in both placements. */
export const BEFORE = `
  CREATE TABLE notes (id int PRIMARY KEY, body text);
  INSERT INTO notes SELECT n, repeat('x', 100) FROM generate_series(1, 100) n;
  CREATE TABLE replies (id int PRIMARY KEY, note int REFERENCES notes ON DELETE SET NULL);
  INSERT INTO replies VALUES (1, 1);
  CREATE TABLE spare (id int);
  INSERT INTO spare VALUES (1);
  CREATE UNLOGGED TABLE unlogged (id int);
  CREATE TABLE parted (id int) PARTITION BY RANGE (id);
  CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
  CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
  INSERT INTO parted VALUES (1);
  CREATE TABLE detached (id int);
  CREATE TABLE child (more text) INHERITS (spare);
  INSERT INTO child VALUES (2, 'more');
  CREATE TABLE "Odd "" name" (id int);
  CREATE VIEW shown AS SELECT * FROM notes;
  CREATE VIEW ruled AS SELECT 1 AS id;
  CREATE RULE ruled_insert AS ON INSERT TO ruled DO INSTEAD INSERT INTO spare VALUES (new.id);
  CREATE MATERIALIZED VIEW gathered AS SELECT * FROM notes;
  CREATE TABLE watched (id int);
  INSERT INTO watched VALUES (1), (2);
  CREATE FUNCTION writes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO spare VALUES (3); RETURN old; END $$;
  CREATE TRIGGER watched_delete BEFORE DELETE ON watched FOR EACH ROW EXECUTE FUNCTION writes();
  CREATE FUNCTION adds() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ INSERT INTO spare VALUES (4) $$;
  CREATE FUNCTION makes() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CREATE TABLE made (id int); END $$;
  CREATE FUNCTION makes_by_explain() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE line text; BEGIN EXECUTE 'EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1' INTO line; END $$;
  CREATE TYPE mood AS ENUM ('good');
  CREATE SEQUENCE numbers;
  GRANT INSERT, UPDATE, DELETE, SELECT ON ALL TABLES IN SCHEMA %SCHEMA% TO %READER%;
  GRANT CREATE ON SCHEMA %SCHEMA% TO %READER%;
`;

/** The large object of {@link ATTEMPTS}. */
export const LARGE_OBJECT = "SELECT lo_from_bytea(0, 'a large object')::text AS id";

/** The name of one of the triggers that protect it. */
export const A_TRIGGER = "SELECT tgname AS name FROM pg_trigger WHERE tgrelid = 'notes'::regclass AND tgname ~ '^postern_quota_' LIMIT 1";

interface Attempt {
  readonly sql: string;
  /** Default: 53100. */
  readonly code?: string;
  /** Whether the HTTP door refuses it anyway, or it is one for a session. */
  readonly isForSessions?: boolean;
}

/** Attempts of the organization's own role to write something, to be able to, or to take its protection away. */
export const ATTEMPTS: readonly Attempt[] = [
  { sql: "INSERT INTO notes VALUES (1000, 'new')" },
  { sql: 'INSERT INTO notes SELECT * FROM notes WHERE false' },
  { sql: "UPDATE notes SET body = 'changed'" },
  { sql: "INSERT INTO notes VALUES (1, 'new') ON CONFLICT (id) DO UPDATE SET body = 'changed'" },
  { sql: "INSERT INTO notes VALUES (1, 'new') ON CONFLICT DO NOTHING" },
  { sql: "MERGE INTO notes USING spare ON false WHEN NOT MATCHED THEN INSERT VALUES (1000, 'new')" },
  { sql: "MERGE INTO notes USING spare ON notes.id = spare.id WHEN MATCHED THEN UPDATE SET body = 'changed'" },
  { sql: 'INSERT INTO unlogged VALUES (1)' },
  { sql: 'INSERT INTO "Odd "" name" VALUES (1)' },
  { sql: 'INSERT INTO parted VALUES (2)' },
  { sql: 'INSERT INTO parted_1 VALUES (2)' },
  { sql: 'UPDATE parted SET id = 2' },
  { sql: 'UPDATE parted SET id = 12' },
  { sql: 'INSERT INTO child VALUES (5)' },
  { sql: 'UPDATE spare SET id = 6' },
  { sql: "INSERT INTO shown VALUES (1000, 'new')" },
  { sql: "UPDATE shown SET body = 'changed'" },
  { sql: 'INSERT INTO ruled VALUES (7)' },
  { sql: 'DELETE FROM watched' },
  { sql: 'WITH gone AS (DELETE FROM notes RETURNING id) INSERT INTO spare SELECT id FROM gone' },
  { sql: 'DELETE FROM notes WHERE id = 1' },
  { sql: 'SELECT adds()' },
  { sql: 'SELECT makes()' },
  { sql: 'SELECT makes_by_explain()', code: '42501' },
  { sql: 'DO $$ BEGIN INSERT INTO spare VALUES (8); END $$' },
  { sql: "DO $$ BEGIN EXECUTE 'CREATE TABLE made (id int)'; END $$" },
  { sql: 'CREATE TABLE made (id int)' },
  { sql: 'CREATE TABLE made AS SELECT 1' },
  { sql: 'SELECT 1 AS id INTO made' },
  { sql: 'EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1', code: '42501' },
  { sql: 'EXPLAIN ANALYZE CREATE MATERIALIZED VIEW made AS SELECT 1', code: '42501' },
  { sql: 'EXPLAIN ANALYZE CREATE TEMPORARY TABLE made AS SELECT 1', code: '42501', isForSessions: true },
  { sql: 'CREATE TEMPORARY TABLE made (id int)', isForSessions: true },
  { sql: 'CREATE UNLOGGED TABLE made (id int)' },
  { sql: 'CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM (20) TO (30)' },
  { sql: 'REFRESH MATERIALIZED VIEW gathered' },
  { sql: 'CREATE INDEX ON notes (body)' },
  { sql: 'CREATE INDEX CONCURRENTLY ON notes (body)' },
  { sql: 'ALTER TABLE notes ADD more text' },
  { sql: 'ALTER TABLE notes DISABLE TRIGGER ALL' },
  { sql: 'ALTER TABLE notes DISABLE TRIGGER USER' },
  { sql: 'ALTER TABLE notes RENAME TO other' },
  { sql: 'ALTER TABLE notes OWNER TO %READER%' },
  { sql: 'ALTER TABLE parted ATTACH PARTITION detached FOR VALUES FROM (30) TO (40)' },
  { sql: 'ALTER TABLE parted DETACH PARTITION parted_2' },
  { sql: 'ALTER TABLE notes ENABLE ROW LEVEL SECURITY' },
  { sql: 'ALTER TABLE notes ALTER body TYPE varchar' },
  { sql: "ALTER TYPE mood ADD VALUE 'bad'" },
  { sql: 'GRANT SELECT ON notes TO PUBLIC' },
  { sql: "COMMENT ON TABLE notes IS 'a comment'" },
  { sql: 'CREATE FUNCTION one() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$' },
  { sql: 'CREATE VIEW another AS SELECT 1' },
  { sql: 'CREATE TYPE another AS (id int)' },
  { sql: 'CREATE SEQUENCE another' },
  { sql: 'CREATE STATISTICS another ON id, body FROM notes' },
  { sql: 'CREATE SCHEMA another' },
  { sql: 'CREATE EXTENSION citext' },
  { sql: 'ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC' },
  { sql: 'CREATE TRIGGER another BEFORE INSERT ON spare EXECUTE FUNCTION writes()' },
  { sql: 'DROP TRIGGER %TRIGGER% ON notes' },
  { sql: 'DROP TRIGGER watched_delete ON watched' },
  { sql: 'ALTER TRIGGER %TRIGGER% ON notes RENAME TO another' },
  { sql: 'DROP RULE ruled_insert ON ruled' },
  { sql: 'REASSIGN OWNED BY CURRENT_USER TO %READER%', code: '42501' },
  { sql: 'DROP EVENT TRIGGER postern_disk_quota', code: '42501' },
  { sql: 'ALTER EVENT TRIGGER postern_disk_quota DISABLE', code: '42501' },
  { sql: 'DROP FUNCTION pg_catalog.postern_refuse_write() CASCADE', code: '42501' },
  { sql: 'DROP FUNCTION pg_catalog.postern_refuse_ddl() CASCADE', code: '42501' },
  { sql: 'DROP TABLE pg_catalog.postern_over_quota', code: '42501' },
  { sql: 'DELETE FROM pg_catalog.postern_over_quota', code: '42501' },
  { sql: 'TRUNCATE pg_catalog.postern_over_quota', code: '42501' },
  { sql: 'SELECT FROM pg_catalog.postern_over_quota_schemas', code: '42501' },
  { sql: 'DO $$ BEGIN LOCK TABLE pg_catalog.postern_over_quota IN ROW EXCLUSIVE MODE; END $$', code: '42501' },
  { sql: 'SET session_replication_role = replica', code: '42501', isForSessions: true },
  { sql: 'SET allow_system_table_mods = on', code: '42501', isForSessions: true },
  { sql: 'GRANT postern_owners TO CURRENT_USER', code: '42501' },
  { sql: "SELECT lo_from_bytea(0, 'another')", code: '42501' },
  { sql: 'SELECT lo_create(0)', code: '42501' },
  { sql: 'SELECT lo_creat(-1)', code: '42501' },
  { sql: "SELECT lo_put(%LO%, 0, 'longer than it was before')", code: '42501' },
  { sql: "DO $$ DECLARE fd int := lo_open(%LO%, 131072); BEGIN PERFORM lowrite(fd, 'another'); END $$", code: '42501' },
  { sql: 'DO $$ DECLARE fd int := lo_open(%LO%, 131072); BEGIN PERFORM lo_truncate64(fd, 1000000000); END $$', code: '42501' },
];

/** As {@link ATTEMPTS}, of a reader who has been granted to write, and may call the organization's functions. */
export const READERS_ATTEMPTS: readonly Attempt[] = [
  { sql: "INSERT INTO notes VALUES (1000, 'new')" },
  { sql: "UPDATE notes SET body = 'changed'" },
  { sql: 'INSERT INTO parted_2 VALUES (12)' },
  { sql: 'SELECT adds()' },
  { sql: 'SELECT makes()' },
  { sql: 'SELECT makes_by_explain()', code: '42501' },
  { sql: 'CREATE TABLE made (id int)' },
];

/** What makes room, in this order, and what reads. */
export const ALLOWED: readonly string[] = [
  'SELECT count(*) FROM notes',
  'SELECT body FROM notes ORDER BY body LIMIT 1',
  'DELETE FROM replies',
  'DELETE FROM notes WHERE id < 50',
  'TRUNCATE unlogged',
  'ANALYZE notes',
  'VACUUM FULL notes',
  'DROP INDEX IF EXISTS none',
  'DROP MATERIALIZED VIEW gathered',
  'DROP TABLE child',
  'DROP TABLE parted_2',
  'DROP FUNCTION adds()',
  'SELECT lo_unlink(%LO%)',
];

/** Everything works again. */
export const AFTERWARDS: readonly string[] = [
  "INSERT INTO notes VALUES (1000, 'new')",
  "UPDATE notes SET body = 'changed'",
  'INSERT INTO parted VALUES (3)',
  'CREATE TABLE made (id int)',
  'EXPLAIN ANALYZE CREATE TABLE made_again AS SELECT 1',
  "SELECT lo_from_bytea(0, 'another')",
  'ALTER TABLE notes ADD more text',
];
