import { type Attack, elsewhere, type Proof, refused, shows } from './attack.ts';

const seesRows: Proof = { victim: ({ place }) => `SELECT secret FROM ${place}.secrets` };
const seesOwnRows: Proof = { victim: () => 'SELECT secret FROM secrets' };
const seesLargeObject: Proof = { victim: ({ facts }) => `SELECT convert_from(lo_get(${facts.largeObject}), 'UTF8')` };
const seesNumber: Proof = { victim: ({ facts }) => `SELECT nextval(${facts.sequence}::oid::regclass)` };

/** @param inDatabase SQLSTATE where the victim's schema is in another database */
function onTable(way: string, inDatabase: string, sql: (table: string) => string | readonly string[]): Attack {
  return { way, sql: ({ victim }) => sql(`${victim.id}.secrets`), answer: elsewhere(inDatabase), proof: seesRows };
}

function onLargeObject(way: string, sql: (id: string) => string): Attack {
  return { way, sql: ({ facts }) => sql(facts.largeObject), answer: elsewhere('42704'), proof: seesLargeObject };
}

/** At rows, by every name and number under which a table can be meant, and by what can be built on one. */
export const ROW_ATTACKS: readonly Attack[] = [
  { way: 'by the name of a table', sql: () => 'SELECT * FROM secrets', answer: refused('42P01'), proof: seesOwnRows },
  { way: 'by public', sql: () => 'SELECT * FROM public.secrets', answer: refused('42P01'), proof: seesRows },
  onTable('by the schema of another', '42P01', (table) => `SELECT * FROM ${table}`),
  {
    way: 'by a table that is open to everybody by default',
    sql: ({ victim }) => `TABLE ${victim.id}.open_secrets`,
    answer: elsewhere('42P01'),
    proof: { victim: ({ place }) => `TABLE ${place}.open_secrets` },
  },
  {
    way: 'by a view that is open to everybody',
    sql: ({ victim }) => `SELECT * FROM ${victim.id}.secret_view`,
    answer: elsewhere('42P01'),
    proof: { victim: ({ place }) => `SELECT * FROM ${place}.secret_view` },
  },
  {
    way: 'by the database of another',
    sql: ({ victim }) => `TABLE ${victim.id}.public.secrets`,
    answer: refused('0A000'),
    proof: seesRows,
  },
  {
    way: 'by a search path to another',
    sql: ({ victim }) => [`SET LOCAL search_path = ${victim.id}`, 'SELECT * FROM secrets'],
    answer: refused('42P01'),
    proof: seesOwnRows,
  },
  {
    way: 'by a search path that no parser sees',
    sql: ({ victim }) =>
      `DO $$ BEGIN PERFORM set_config('search_' || 'path', '${victim.id}', true); EXECUTE 'SELECT FROM secr' || 'ets'; END $$`,
    answer: refused('42P01'),
    proof: seesOwnRows,
  },
  {
    way: 'by the search path of a function',
    sql: ({ victim }) => `CREATE FUNCTION peek() RETURNS text LANGUAGE sql SET search_path = ${victim.id} AS 'SELECT secret FROM secrets'`,
    answer: refused('42P01'),
    proof: seesOwnRows,
  },
  onTable('by a statement that no parser sees', '42P01', (table) => `DO $$ BEGIN EXECUTE 'SELECT FROM ' || '${table}'; END $$`),
  {
    way: "by another's function that runs as its owner",
    sql: ({ victim }) => `SELECT ${victim.id}.tell_secret()`,
    answer: elsewhere('3F000'),
    proof: { victim: ({ place }) => `SELECT ${place}.tell_secret()` },
  },
  onTable('by a plan', '42P01', (table) => `EXPLAIN ANALYZE SELECT * FROM ${table}`),
  onTable('by a view on it', '42P01', (table) => `CREATE VIEW peek AS SELECT * FROM ${table}`),
  onTable('by a function on it', '42P01', (table) => `CREATE FUNCTION peek() RETURNS text LANGUAGE sql AS 'SELECT secret FROM ${table}'`),
  onTable('by a copy of its columns', '3F000', (table) => `CREATE TABLE peek (LIKE ${table})`),
  onTable('by inheriting from it', '3F000', (table) => `CREATE TABLE peek () INHERITS (${table})`),
  onTable('by a foreign key, which tells what is there', '3F000', (table) => `CREATE TABLE peek (guess text REFERENCES ${table} (secret))`),
  onTable('by a trigger on it', '3F000', (table) => {
    return `CREATE TRIGGER peek BEFORE UPDATE ON ${table} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`;
  }),
  onTable('by a rule on it', '3F000', (table) => `CREATE RULE peek AS ON INSERT TO ${table} DO ALSO SELECT 1`),
  onTable('by a policy on it', '3F000', (table) => `CREATE POLICY peek ON ${table}`),
  onTable('by an index on it', '3F000', (table) => `CREATE INDEX ON ${table} (secret)`),
  onTable('by statistics on it', '3F000', (table) => `CREATE STATISTICS peek ON id, secret FROM ${table}`),
  onTable('by writing into it', '42P01', (table) => `INSERT INTO ${table} (secret) VALUES ('planted')`),
  onTable('by changing it', '42P01', (table) => `UPDATE ${table} SET secret = 'changed'`),
  onTable('by emptying it', '3F000', (table) => `TRUNCATE ${table}`),
  onTable('by dropping it', '3F000', (table) => `DROP TABLE ${table}`),
  onTable('by locking it', '3F000', (table) => ['SELECT 1', `LOCK TABLE ${table}`]),
  onTable('by rewriting it', '3F000', (table) => `VACUUM FULL ${table}`),
  onTable('by analyzing it', '3F000', (table) => `ANALYZE ${table}`),
  onTable('by making it its own', '3F000', (table) => `ALTER TABLE ${table} OWNER TO CURRENT_USER`),
  onTable('by granting itself rights on it', '3F000', (table) => `GRANT ALL ON ${table} TO CURRENT_USER`),
  {
    way: 'by a table planted beside it',
    sql: ({ victim }) => `CREATE TABLE ${victim.id}.planted ()`,
    answer: elsewhere('3F000'),
    proof: seesRows,
  },
  {
    way: 'by a function planted beside it',
    sql: ({ victim }) => `CREATE FUNCTION ${victim.id}.lower(varchar) RETURNS text LANGUAGE sql AS $$ SELECT 'planted' $$`,
    answer: elsewhere('3F000'),
    proof: seesRows,
  },
  {
    way: 'by a query inside of a function call',
    sql: ({ victim }) => `SELECT query_to_xml('SELECT * FROM ${victim.id}.secrets', true, false, '')`,
    answer: elsewhere('42P01'),
    proof: { victim: ({ place }) => `SELECT query_to_xml('SELECT * FROM ${place}.secrets', true, false, '')` },
  },
  {
    way: 'by its object id inside of a function call',
    sql: ({ facts }) => `SELECT table_to_xml(${facts.table}::oid::regclass, true, false, '')`,
    // The function makes SQL of it again, which ends up as a bare number where the id means nothing.
    answer: elsewhere('42601'),
    proof: { victim: ({ facts }) => `SELECT table_to_xml(${facts.table}::oid::regclass, true, false, '')` },
  },
  {
    way: 'by a whole schema as XML',
    sql: ({ victim }) => `SELECT schema_to_xml('${victim.id}', true, false, '')`,
    answer: elsewhere('3F000'),
    proof: { victim: ({ place }) => `SELECT schema_to_xml('${place}', true, false, '')` },
  },
  {
    way: 'by the whole database as XML',
    sql: () => "SELECT (database_to_xml(true, false, '')::text LIKE '%<secret%')::text",
    answer: shows(['false']),
    proof: { victim: () => "SELECT database_to_xml(true, false, '')" },
  },
  {
    way: 'by a temporary table of another session',
    sql: ({ facts }) => `SELECT * FROM ${facts.tempSchema}.passing`,
    answer: elsewhere('42P01'),
    proof: seesRows,
  },
  { way: "by another session's cursor", sql: () => 'FETCH ALL FROM secret_cursor', answer: refused('34000'), proof: seesRows },
  { way: "by another session's prepared statement", sql: () => 'EXECUTE secret_statement', answer: refused('26000'), proof: seesRows },
  {
    way: "by another transaction's snapshot",
    sql: ({ kind, facts, victim }) => [
      'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ',
      `SET TRANSACTION SNAPSHOT '${facts.snapshot}'`,
      // Of another database it cannot even be taken.
      ...(kind === 'schema' ? [`SELECT * FROM ${victim.id}.secrets`] : []),
    ],
    answer: elsewhere('0A000'),
    proof: seesRows,
  },
  {
    way: 'by the next value of a sequence',
    sql: ({ facts }) => `SELECT nextval(${facts.sequence}::oid::regclass)`,
    answer: elsewhere('XX000'),
    proof: seesNumber,
  },
  {
    way: 'by the last value of a sequence',
    sql: () => "SELECT last_value::text FROM pg_sequences WHERE sequencename = 'secret_numbers' AND last_value IS NOT NULL",
    answer: shows(),
    proof: seesNumber,
  },
  onLargeObject('by reading a large object', (id) => `SELECT lo_get(${id})`),
  onLargeObject('by writing a large object', (id) => `SELECT lo_put(${id}, 0, 'gone')`),
  onLargeObject('by deleting a large object', (id) => `SELECT lo_unlink(${id})`),
  onLargeObject('by granting itself a large object', (id) => `GRANT ALL ON LARGE OBJECT ${id} TO CURRENT_USER`),
  onLargeObject('by making a large object its own', (id) => `ALTER LARGE OBJECT ${id} OWNER TO CURRENT_USER`),
];
