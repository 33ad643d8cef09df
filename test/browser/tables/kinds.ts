import { HOSTILE } from '../support/hostile.ts';

export const HOSTILE_NAME = `"${HOSTILE.replaceAll('"', '""')}"`;

/** A table with a column of each kind, and rows with what is hardest to keep. */
export const KINDS = `
  CREATE TYPE mood AS ENUM ('sad', 'ok');
  CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
  CREATE DOMAIN short AS varchar(3);
  CREATE TYPE pair AS (a int, b text);
  CREATE TABLE kinds (
    id integer PRIMARY KEY, big bigint, num numeric, f4 real, f8 double precision, ts timestamptz, t timestamp, bin bytea, txt text, arr integer[], jb jsonb,
    js json, m mood, p positive, s short, pt point, v3 varchar(3), c3 char(3), iv interval, ip inet, x xml, bounds integer[], d date, bools boolean[],
    tss timestamptz[], jbs jsonb[], boxes box[], uid uuid, cash money, pr pair, moods mood[], b3 bit(3), r int4range, ch "char", grid integer[], n5 numeric(5,2),
    gen integer GENERATED ALWAYS AS (id * 2) STORED);
  INSERT INTO kinds VALUES (1, 9223372036854775807, '123456789012345678901234567890.1234567890', '1e-40', 'NaN', '2025-01-31 09:30:00.123456+00',
    '2025-01-31 09:30:00.5', '\\x00ff10', '', '{1,NULL,3}', '{"a": 1.0, "b": "\\u20ac"}', '{"a" :  1,
 "a":2}', 'ok', 5, 'abc', '(1,2)', 'a', 'a', '1 mon 2 days', '10.0.0.1', '<a>x</a>', '[2:3]={7,8}', '2025-01-01', '{t,f,NULL}',
    '{"2025-01-31 09:30:00.123456+00"}', array['null', '{"a": [1]}', null]::jsonb[], '{(2,2),(1,1)}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 12.5, '(1,"a b")',
    '{ok,sad}', '101', '[1,5)', 'x', '{{1,2},{3,4}}', 1.5);
  INSERT INTO kinds (id) VALUES (2);
  INSERT INTO kinds (id, jb, js, f8, ts, t, txt, d, arr) VALUES (3, 'null', 'null', '-0', 'infinity', '0044-03-15 12:00:00 BC', E'it''s \\\\ "x"\\n\\t$1', 'infinity', '{}');
  INSERT INTO kinds (id, jb, js, f8, num, txt, v3) VALUES (4, '[null]', ' null ', '-Infinity', 'NaN', $$${HOSTILE}$$, 'ü€😀');
`;
