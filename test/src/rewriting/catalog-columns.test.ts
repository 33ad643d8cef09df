import { describe, expect, it } from 'vitest';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';

const TARGET = { schema: 'org_k3v9x0q2m7t1', database: 'shared' };
const NAMESPACES = 'SELECT 1 FROM pg_namespace WHERE';
const name = (parameter: string, type = 'pg_catalog.name') =>
  `(CASE WHEN ${parameter}::${type} OPERATOR(pg_catalog.=) 'public' THEN 'org_k3v9x0q2m7t1' ELSE ${parameter}::${type} END)`;

describe('a parameter that is compared with the name of a schema', () => {
  it.each([
    [`${NAMESPACES} nspname = $1`, `${NAMESPACES} nspname = ${name('$1')}`],
    [`${NAMESPACES} nspname = $1::text AND x = $2`, `${NAMESPACES} nspname = ${name('$1', 'text')}::text AND x = $2`],
    [`${NAMESPACES} nspname IN ($1, $12)`, `${NAMESPACES} nspname IN (${name('$1')}, ${name('$12')})`],
    [
      `${NAMESPACES} nspname = ANY ( $1 )`,
      `${NAMESPACES} nspname = ANY ( pg_catalog.array_replace($1::pg_catalog.name[], 'public', 'org_k3v9x0q2m7t1') )`,
    ],
    [
      `${NAMESPACES} nspname = ANY($1::text[])`,
      `${NAMESPACES} nspname = ANY(pg_catalog.array_replace($1::text[], 'public', 'org_k3v9x0q2m7t1')::text[])`,
    ],
    [
      'SELECT 1 FROM information_schema.tables WHERE table_schema=$1 AND table_name=$2',
      `SELECT 1 FROM information_schema.tables WHERE table_schema=${name('$1')} AND table_name=$2`,
    ],
  ])('%s', (text, rewritten) => {
    expect(rewriteSql(text, TARGET).sql).toBe(rewritten);
  });

  it.each([
    'SELECT 1 FROM tenants WHERE schema_name = $1',
    'SELECT 1 FROM pg_class WHERE relname = $1',
    'SELECT $1::regclass, relname FROM pg_class WHERE oid = $1',
    "SELECT ('public.' || $1)::regclass, nextval(x || $1), $1::text, $1::oid::regclass",
    'CREATE FUNCTION f(name) RETURNS bool LANGUAGE sql AS $$ SELECT true FROM pg_namespace WHERE nspname = $1 $$',
  ])('is left alone elsewhere: %s', (text) => {
    expect(rewriteSql(text, TARGET).sql).toBe(text);
  });
});

it('leaves the parameters of long texts alone: what replaces them would be fifty times as long', () => {
  const text = `SELECT ${'$1::regclass, to_regclass($2), '.repeat(3_000)}`;
  expect(rewriteSql(text, TARGET).sql).toBe(text);
});

it("puts the database's name where the organization's is looked up", () => {
  expect(rewriteSql(`select 1 from pg_database where datname = 'org_k3v9x0q2m7t1'`, TARGET).sql).toBe(
    `select 1 from pg_database where datname = 'shared'`,
  );
  const another = `select 1 from pg_database where datname = 'org_another'`;
  expect(rewriteSql(another, TARGET).sql).toBe(another);
});
