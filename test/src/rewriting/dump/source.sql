-- A database with one of everything that an application's schema has, for dumping. `public` is also data, a column, a label.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'public');
CREATE TYPE address AS (street text, city text);
CREATE DOMAIN email AS text CHECK (VALUE ~ '^[^@]+@[^@]+$');
CREATE DOMAIN public_name AS varchar(40) DEFAULT 'public.name' NOT NULL;
CREATE SEQUENCE ticket_numbers START 100 INCREMENT 5;
CREATE COLLATION german FROM "C";

CREATE FUNCTION slug(title text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS 'SELECT lower(regexp_replace(title, ''[^a-zA-Z]+'', ''-'', ''g''))';
CREATE FUNCTION next_ticket() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('public.ticket_numbers') $$;

CREATE TABLE teams (
  id serial PRIMARY KEY,
  name public_name UNIQUE,
  public boolean DEFAULT true,
  slug text GENERATED ALWAYS AS (slug(name::text)) STORED
);
CREATE TABLE users (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  team_id integer NOT NULL REFERENCES teams ON DELETE CASCADE,
  email email NOT NULL,
  mood mood DEFAULT 'public',
  moods mood[] DEFAULT '{ok,public}',
  home address,
  ticket bigint DEFAULT next_ticket(),
  visits bigint DEFAULT nextval('ticket_numbers'::regclass),
  name text COLLATE german,
  settings jsonb DEFAULT '{"public": "public.users"}',
  CONSTRAINT users_email_length CHECK (length(email::text) < 100)
);
CREATE UNIQUE INDEX users_email ON users (lower(email::text));
CREATE INDEX users_public ON users (team_id) WHERE mood = 'public'::mood;
CREATE TABLE "public" ("public" text PRIMARY KEY, "Public Key" text DEFAULT 'public.public');
CREATE TABLE audit (at timestamptz DEFAULT now(), relation text, operation text, row_data jsonb);
CREATE TABLE measures (taken date NOT NULL, sensor integer, value numeric) PARTITION BY RANGE (taken);
CREATE TABLE measures_2024 PARTITION OF measures FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE measures_rest PARTITION OF measures DEFAULT;
CREATE INDEX measures_sensor ON measures (sensor);
CREATE TABLE events (id serial, payload json);
CREATE TABLE logins (ip inet) INHERITS (events);

CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $_$
DECLARE
  target public.audit%ROWTYPE;
BEGIN
  -- public.audit is written with EXECUTE, as old code does
  EXECUTE 'INSERT INTO public.audit (relation, operation, row_data) VALUES ($1::regclass::text, $2, $3)'
    USING TG_RELID, TG_OP, to_jsonb(COALESCE(NEW, OLD)) || '{"note": "public.audit"}';
  EXECUTE format('UPDATE public.%I SET public = NOT public WHERE false', 'teams');
  PERFORM pg_notify('changes_' || TG_TABLE_NAME, 'public.users');
  SELECT * INTO target FROM public.audit LIMIT 1;
  RETURN COALESCE(NEW, OLD);
END
$_$;
CREATE TRIGGER users_audit AFTER INSERT OR UPDATE OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION audit_row('public.users');

CREATE FUNCTION team_of(who users) RETURNS teams LANGUAGE sql STABLE BEGIN ATOMIC SELECT t.* FROM teams t WHERE t.id = who.team_id; END;
CREATE PROCEDURE rename_team(team integer, new_name text) LANGUAGE plpgsql AS 'BEGIN UPDATE public.teams SET name = new_name || '' public.x'' WHERE id = team; END';
CREATE FUNCTION add_moods(a integer, b mood) RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT a + array_position(enum_range(NULL::public.mood), b) $$;
CREATE AGGREGATE total_mood(mood) (SFUNC = add_moods, STYPE = integer, INITCOND = '0');
CREATE FUNCTION same_city(a address, b address) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT a.city = b.city $$;
CREATE OPERATOR === (LEFTARG = address, RIGHTARG = address, FUNCTION = same_city, COMMUTATOR = ===);
CREATE CAST (address AS text) WITH INOUT AS ASSIGNMENT;

CREATE VIEW team_sizes AS
  SELECT public.id, public.name, count(users.id) AS size, public.public, 'public.teams'::regclass AS source
  FROM teams AS public LEFT JOIN users ON users.team_id = public.id GROUP BY public.id;
CREATE VIEW neighbours AS SELECT a.id AS a, b.id AS b FROM users a JOIN users b ON a.home === b.home AND a.id < b.id;
CREATE MATERIALIZED VIEW moods AS SELECT mood, count(*) AS count, total_mood(mood) AS total FROM users GROUP BY mood;
CREATE UNIQUE INDEX moods_mood ON moods (mood);
CREATE RULE keep_public AS ON DELETE TO "public" DO INSTEAD NOTIFY kept;

ALTER TABLE teams ENABLE ROW LEVEL SECURITY;
CREATE POLICY everyone ON teams TO PUBLIC USING (public OR slug('public.x') IS NULL);
GRANT SELECT ON teams, team_sizes TO PUBLIC;
REVOKE EXECUTE ON FUNCTION next_ticket() FROM PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO PUBLIC;
COMMENT ON TABLE teams IS 'see public.users; it''s public';
COMMENT ON COLUMN teams.public IS 'public';
CREATE STATISTICS team_statistics ON team_id, mood FROM users;

INSERT INTO teams (name) VALUES ('Public Affairs'), ('public.teams'), ('it''s \public.x');
INSERT INTO users (team_id, email, home, name) VALUES
  (1, 'a@public.x', ROW('A St', 'Bonn'), 'public.users'), (1, 'b@public.x', ROW('B St', 'Bonn'), E'two\nlines'), (2, 'c@public.x', NULL, NULL);
INSERT INTO "public" VALUES ('public', 'public.public');
INSERT INTO measures VALUES ('2024-05-01', 1, 1.5), ('2023-05-01', 2, 2.5);
INSERT INTO logins (payload, ip) VALUES ('{"public": 1}', '10.0.0.1');
REFRESH MATERIALIZED VIEW moods;
