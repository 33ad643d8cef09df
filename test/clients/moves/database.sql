-- What an organization can make that has a database of its own, and that can be moved.

CREATE SCHEMA stock;
CREATE EXTENSION hstore WITH SCHEMA stock;
CREATE EXTENSION "uuid-ossp";
CREATE TABLE stock.places (id uuid PRIMARY KEY DEFAULT uuid_generate_v4(), name text, more stock.hstore, kind regclass DEFAULT 'public.books');
INSERT INTO stock.places VALUES ('9b2a4c1e-0000-4000-8000-000000000001', 'top', 'a=>1, b=>NULL');
ALTER TABLE public.authors ADD home uuid REFERENCES stock.places;
COMMENT ON SCHEMA stock IS 'things';
CREATE FUNCTION mood_of(text) RETURNS public.mood LANGUAGE sql IMMUTABLE AS 'SELECT $1::public.mood';
CREATE CAST (public.point3 AS text) WITH INOUT;
