import { describe, expect, it } from 'vitest';
import { clientChannel, serverChannel } from '../../../src/rewriting/names.ts';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { SCHEMA, TARGET as SEPARATED } from './marked.ts';

/** Where pg_notify is the server's. */
const TARGET = { ...SEPARATED, pgNotify: 'postern.pg_notify' };

/** `~` and the SHA-256 of 50 times `x`, as base64url. */
const LONG = 'x'.repeat(50);
const LONG_SERVER = `${SCHEMA}:~d88SBg1HGD6oxANF5ziefgXLB1PKs3Sl50-TKYFbTLU`;

describe('rewrites channels', () => {
  it.each([
    [`LISTEN changes`, `LISTEN "${SCHEMA}:changes"`],
    [`listen Changes;`, `listen "${SCHEMA}:changes";`],
    [`LISTEN "My Changes"`, `LISTEN "${SCHEMA}:My Changes"`],
    [`LISTEN "a""b"; LISTEN b`, `LISTEN "${SCHEMA}:a""b"; LISTEN "${SCHEMA}:b"`],
    [`LISTEN U&"\\0061b"`, `LISTEN U&"${SCHEMA}:\\0061b"`],
    [`LISTEN äöü`, `LISTEN "${SCHEMA}:äöü"`],
    [`LISTEN public`, `LISTEN "${SCHEMA}:public"`],
    [`LISTEN/**/a`, `LISTEN/**/"${SCHEMA}:a"`],
    [`UNLISTEN changes; UNLISTEN *`, `UNLISTEN "${SCHEMA}:changes"; UNLISTEN *`],
    [`NOTIFY changes`, `NOTIFY "${SCHEMA}:changes"`],
    [`NOTIFY changes, 'public.x'`, `NOTIFY "${SCHEMA}:changes", 'public.x'`],
    [`BEGIN; NOTIFY a, 'x'; NOTIFY b; COMMIT`, `BEGIN; NOTIFY "${SCHEMA}:a", 'x'; NOTIFY "${SCHEMA}:b"; COMMIT`],
    [`LISTEN ${LONG}`, `LISTEN "${LONG_SERVER}"`],
    [`LISTEN "${LONG}"`, `LISTEN "${LONG_SERVER}"`],
    [`SELECT pg_notify('changes', 'public.x')`, `SELECT postern.pg_notify('changes', 'public.x')`],
    [`SELECT pg_catalog.PG_NOTIFY ( E'a\\'b', $1 )`, `SELECT postern.pg_notify ( E'a\\'b', $1 )`],
    [`SELECT "pg_catalog" . "pg_notify"('a', 'x')`, `SELECT postern.pg_notify('a', 'x')`],
    [`SELECT pg_notify($1, $2)`, `SELECT postern.pg_notify($1, $2)`],
    [`SELECT pg_notify('a' || pg_notify($1, ''), '')`, `SELECT postern.pg_notify('a' || postern.pg_notify($1, ''), '')`],
  ])('%s', (sent, wanted) => {
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), TARGET).sql.toString()).toBe(wanted);
  });
});

describe('what is stored has no prefix in it, which others could read there', () => {
  it.each([
    [`CREATE RULE r AS ON INSERT TO t DO NOTIFY a`, `CREATE RULE r AS ON INSERT TO t DO SELECT FROM postern.pg_notify('a', '') OFFSET 1`],
    [
      `CREATE OR REPLACE RULE r AS ON INSERT TO t DO ALSO (NOTIFY a; NOTIFY "B", 'x'; NOTIFY c); NOTIFY d`,
      `CREATE OR REPLACE RULE r AS ON INSERT TO t DO ALSO (SELECT FROM postern.pg_notify('a', '') OFFSET 1; SELECT FROM postern.pg_notify('B', 'x') OFFSET 1; SELECT FROM postern.pg_notify('c', '') OFFSET 1); NOTIFY "${SCHEMA}:d"`,
    ],
    [
      `DO $$ BEGIN IF x THEN NOTIFY a; ELSE NOTIFY "b'c", 'x'; END IF; END $$`,
      `DO $$ BEGIN IF x THEN CALL postern.notify('a'); ELSE CALL postern.notify('b''c', 'x'); END IF; END $$`,
    ],
    [`DO 'BEGIN NOTIFY it, ''x''; END'`, `DO 'BEGIN CALL postern.notify(''it'', ''x''); END'`],
    [`DO $$ BEGIN EXECUTE 'NOTIFY Aä'; END $$`, `DO $$ BEGIN EXECUTE 'CALL postern.notify(''aä'')'; END $$`],
    [
      `CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'LISTEN a; UNLISTEN "a b"; UNLISTEN *'`,
      `CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'CALL postern.listen(''a''); CALL postern.unlisten(''a b''); UNLISTEN *'`,
    ],
    [`DO $$ BEGIN NOTIFY ${'ä'.repeat(40)}; END $$`, `DO $$ BEGIN CALL postern.notify('${'ä'.repeat(31)}'); END $$`],
    [`DO $$ BEGIN PERFORM pg_notify(TG_ARGV[0], x); END $$`, `DO $$ BEGIN PERFORM postern.pg_notify(TG_ARGV[0], x); END $$`],
    [
      `CREATE FUNCTION f() RETURNS void AS 'SELECT pg_notify(''c'', ''x'')' LANGUAGE sql`,
      `CREATE FUNCTION f() RETURNS void AS 'SELECT postern.pg_notify(''c'', ''x'')' LANGUAGE sql`,
    ],
  ])('%s', (sent, wanted) => {
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), TARGET).sql.toString()).toBe(wanted);
    expect(rewriteSql(wanted, TARGET)).toMatchObject({ sql: wanted, edits: [] });
  });
});

it('leaves pg_notify as it is where that puts the prefix before the name itself', () => {
  const call = "SELECT pg_notify('a', pg_catalog.pg_notify('b', 'c')::text)";
  expect(rewriteSql(call, SEPARATED)).toMatchObject({ sql: call, edits: [] });
  const rule = rewriteSql('CREATE RULE r AS ON INSERT TO t DO NOTIFY a', SEPARATED);
  expect(rule.sql).toBe(`CREATE RULE r AS ON INSERT TO t DO SELECT FROM pg_notify('a', '') OFFSET 1`);
});

describe('does not touch what is no channel', () => {
  it.each([
    `SELECT notify, listen FROM unlisten`,
    `SELECT CASE WHEN a THEN notify ELSE listen END, 1`,
    `UPDATE t SET notify = true, listen = 'listen x'`,
    `CREATE TABLE t (notify boolean, listen text)`,
    `CREATE INDEX ON t (notify desc)`,
    `UNLISTEN *`,
    `DO $$ DECLARE notify boolean; listen text; BEGIN notify := true; END $$`,
    `GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO me`,
    `CREATE FUNCTION pg_notify(text) RETURNS void LANGUAGE sql AS ''`,
    `SELECT mine.pg_notify('a', 'x'), pg_notify, "Pg_notify"()`,
    `DO $$ BEGIN NOTIFY "a\\b"; END $$`,
    `-- LISTEN a\nSELECT 'LISTEN a'`,
    `LISTEN "${SCHEMA}:a"; SELECT postern.pg_notify('${SCHEMA}:a', 'x')`,
    `NOTIFY; LISTEN; LISTEN 'a'; LISTEN a b`,
  ])('%s', (text) => expect(rewriteSql(text, TARGET)).toMatchObject({ sql: text, edits: [] }));
});

describe('the name of a channel', () => {
  it.each(['changes', 'My Changes', 'org:x', '~x', 'ä'.repeat(23), 'x'.repeat(46)])('%s comes back', (name) => {
    const server = serverChannel(name, SCHEMA);
    expect(server).toBe(`${SCHEMA}:${name}`);
    expect(clientChannel(server, SCHEMA)).toBe(name);
  });

  it('that does not fit into 63 bytes comes back to the session that used it', () => {
    const { longChannels } = rewriteSql(Buffer.from(`LISTEN ${LONG}`), TARGET);
    expect([...longChannels]).toEqual([[LONG_SERVER, LONG]]);
    expect(clientChannel(LONG_SERVER, SCHEMA, longChannels)).toBe(LONG);
    expect(Buffer.byteLength(LONG_SERVER)).toBeLessThanOrEqual(63);
  });

  it('is cut to 63 bytes between characters, as the server would', () => {
    const [channel] = rewriteSql(Buffer.from(`LISTEN ${'ä'.repeat(40)}`), TARGET).longChannels;
    expect(channel).toEqual([serverChannel('ä'.repeat(31), SCHEMA), 'ä'.repeat(31)]);
  });

  it.each(['changes', 'org_aaaaaaaaaaaa:changes', `${SCHEMA}x:changes`, SCHEMA, `x${SCHEMA}:changes`])(
    'of another organization is told to nobody: %s',
    (name) => expect(clientChannel(name, SCHEMA)).toBeUndefined(),
  );
});
