-- What an organization can make that has a database of its own.

CREATE SCHEMA stock AUTHORIZATION CURRENT_USER;
CREATE EXTENSION hstore WITH SCHEMA stock;
CREATE EXTENSION "uuid-ossp";
CREATE TABLE stock.places (id uuid PRIMARY KEY DEFAULT uuid_generate_v4(), name text, more stock.hstore);
INSERT INTO stock.places VALUES ('9b2a4c1e-0000-4000-8000-000000000001', 'top', 'a=>1, b=>NULL');
ALTER TABLE public.authors ADD home uuid REFERENCES stock.places;
COMMENT ON SCHEMA stock IS 'things';

SELECT lo_from_bytea(4711, decode(repeat('00ff5c27', 100000), 'hex'));
COMMENT ON LARGE OBJECT 4711 IS 'large';
GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC;
SELECT lo_create(4712);
