-- A database with something of everything that pg_dump knows and an organization can make.

CREATE TYPE mood AS ENUM ('sad', 'o''k', 'happy');
CREATE TYPE point3 AS (x int, y int, label text);
CREATE TYPE spans AS RANGE (subtype = date);
CREATE DOMAIN positive AS numeric(12, 2) DEFAULT 1 CONSTRAINT above_zero CHECK (VALUE > 0);
CREATE DOMAIN address AS text COLLATE "C" NOT NULL CHECK (VALUE ~ '^[^@]+@[^@]+$');

CREATE SEQUENCE tickets AS bigint START 100 INCREMENT 7 MINVALUE 100 CACHE 5;

CREATE FUNCTION shout(what text, times int DEFAULT 1) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  AS $body$ SELECT repeat(upper(what) || '! -- not a comment; $$ ', times) $body$;
CREATE FUNCTION halves(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN $1 / 2;
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.changed := '2025-01-31 09:30:00.123456+00';
  RETURN NEW;
END $$;

CREATE TABLE authors (
  id bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 10) PRIMARY KEY,
  name text NOT NULL UNIQUE,
  mail address,
  mood mood DEFAULT 'happy',
  spot point3,
  changed timestamptz
);
CREATE TABLE books (
  id serial PRIMARY KEY,
  author bigint NOT NULL REFERENCES authors ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
  title varchar(100) NOT NULL,
  gone int,
  price positive,
  half numeric GENERATED ALWAYS AS (halves(price)) STORED,
  ticket bigint DEFAULT nextval('tickets'),
  tags text[] NOT NULL DEFAULT '{}',
  data jsonb,
  document xml,
  cover bytea,
  weight float8,
  lent_for interval,
  lent spans,
  origin inet,
  key uuid,
  bits varbit,
  words tsvector,
  CONSTRAINT titled CHECK (title <> '') NO INHERIT,
  EXCLUDE USING gist (lent WITH &&)
);
ALTER TABLE books DROP COLUMN gone;
ALTER TABLE authors ADD best int REFERENCES books ON DELETE SET NULL DEFERRABLE;
CREATE INDEX by_title ON books (lower(title) DESC NULLS LAST) INCLUDE (price) WHERE price IS NOT NULL;
CREATE INDEX by_data ON books USING gin (data jsonb_path_ops, tags);
CREATE STATISTICS together (ndistinct, dependencies) ON author, price FROM books;
ALTER TABLE books ALTER title SET STATISTICS 500, ALTER cover SET STORAGE EXTERNAL, SET (fillfactor = 70);
CREATE TRIGGER stamped BEFORE INSERT OR UPDATE OF name ON authors FOR EACH ROW WHEN (NEW.name <> 'x') EXECUTE FUNCTION stamp();
CREATE TRIGGER idle BEFORE INSERT ON authors FOR EACH ROW EXECUTE FUNCTION stamp();
ALTER TABLE authors DISABLE TRIGGER idle;

CREATE TABLE events (at date NOT NULL, what text, PRIMARY KEY (at, what)) PARTITION BY RANGE (at);
CREATE TABLE events_2024 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE events_2025 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01') PARTITION BY LIST (what);
CREATE TABLE events_2025_a PARTITION OF events_2025 FOR VALUES IN ('a', NULL);
CREATE TABLE events_rest PARTITION OF events DEFAULT;
CREATE INDEX ON events (what);

CREATE UNLOGGED TABLE scratch (n int);
CREATE TABLE "Weird ""name"", 😀" ("select" int, "a b" text, "ä\b" text);
CREATE TABLE parents (n int PRIMARY KEY, CHECK (n > 0));
CREATE TABLE children (more text) INHERITS (parents);

CREATE VIEW shelf AS SELECT a.name, b.title, b.price FROM authors a JOIN books b ON b.author = a.id;
CREATE VIEW cheap WITH (security_barrier) AS SELECT * FROM books WHERE price < 10 WITH LOCAL CHECK OPTION;
CREATE RECURSIVE VIEW countdown (n) AS VALUES (3) UNION ALL SELECT n - 1 FROM countdown WHERE n > 0;
CREATE MATERIALIZED VIEW prices AS SELECT author, sum(price) AS total FROM books GROUP BY author;
CREATE UNIQUE INDEX ON prices (author);
CREATE MATERIALIZED VIEW unfilled AS SELECT 1 AS n WITH NO DATA;
CREATE RULE no_scratch AS ON DELETE TO scratch DO INSTEAD NOTHING;

CREATE FUNCTION fill(n int) RETURNS SETOF shelf LANGUAGE sql STABLE BEGIN ATOMIC SELECT * FROM shelf ORDER BY title LIMIT n; END;
CREATE PROCEDURE tidy(INOUT n int) LANGUAGE plpgsql SECURITY DEFINER SET search_path = 'public' AS 'BEGIN DELETE FROM public.scratch; n := n + 1; END';
CREATE AGGREGATE longest (text) (SFUNC = textcat, STYPE = text, INITCOND = '');
CREATE FUNCTION same(point3, point3) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT ($1).x = ($2).x';
CREATE OPERATOR === (LEFTARG = point3, RIGHTARG = point3, FUNCTION = same, COMMUTATOR = ===);
CREATE TEXT SEARCH CONFIGURATION plain (COPY = simple);

ALTER TABLE books ENABLE ROW LEVEL SECURITY;
CREATE POLICY cheap_ones ON books FOR SELECT TO PUBLIC USING (price < 100);
GRANT SELECT ON authors TO PUBLIC;
GRANT UPDATE (name) ON authors TO PUBLIC;
REVOKE EXECUTE ON FUNCTION halves FROM PUBLIC;

COMMENT ON TABLE authors IS 'who ''wrote'' them;
on two lines';
COMMENT ON COLUMN authors.spot IS 'a place';
COMMENT ON TYPE mood IS 'how one feels';
COMMENT ON FUNCTION shout IS $$loud$$;
COMMENT ON CONSTRAINT titled ON books IS 'no empty ones';
COMMENT ON TRIGGER stamped ON authors IS 'when';

INSERT INTO authors (name, mail, mood, spot) VALUES
  ('Ada', 'ada@example.org', 'happy', (1, NULL, 'a "b", (c)')),
  (E'tab\t newline\n back\\slash ''quote'' 😀', 'x@y', 'o''k', NULL),
  ('', 'e@mpty', NULL, (NULL, NULL, ''));
INSERT INTO books (author, title, price, tags, data, document, cover, weight, lent_for, lent, origin, key, bits, words)
  SELECT 10, 'book ' || n, n + 0.25, ARRAY['a,b', NULL, '{"', n::text], jsonb_build_object('n', n, 'null', NULL), '<a b="c">&amp;</a>',
    decode(repeat(md5(n::text), 100), 'hex'), (ARRAY['NaN', 'Infinity', '-0', '1.7976931348623157e308', '5e-324'])[n % 5 + 1]::float8,
    make_interval(years => n % 3, secs => n), daterange(date '2000-01-01' + n, date '2000-01-01' + n + 1)::text::spans, '2001:db8::/32',
    md5(n::text)::uuid, n::bit(12)::varbit, to_tsvector('simple', 'book number ' || n)
  FROM generate_series(1, 2000) AS n;
UPDATE authors SET best = 7 WHERE id = 10;
INSERT INTO events VALUES ('2024-05-05', 'x'), ('2025-05-05', 'a'), ('1999-01-01', 'old');
INSERT INTO "Weird ""name"", 😀" VALUES (1, E'\\N', NULL), (2, '\.', '');
INSERT INTO parents VALUES (1);
INSERT INTO children VALUES (2, 'two');
REFRESH MATERIALIZED VIEW prices;
SELECT setval('tickets', 100007, false);
