import { describe, expect, it } from 'vitest';
import { clientChannel, serverChannel } from '../../../../src/router/search-path/channels.ts';
import { rewriteSql } from '../../../../src/router/search-path/rewrite.ts';
import { PLACE, SCHEMA } from './marked.ts';

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
    [`CREATE RULE r AS ON INSERT TO t DO NOTIFY a`, `CREATE RULE r AS ON INSERT TO t DO NOTIFY "${SCHEMA}:a"`],
    [
      `CREATE RULE r AS ON INSERT TO t DO ALSO (NOTIFY a; NOTIFY b)`,
      `CREATE RULE r AS ON INSERT TO t DO ALSO (NOTIFY "${SCHEMA}:a"; NOTIFY "${SCHEMA}:b")`,
    ],
    [
      `DO $$ BEGIN IF x THEN NOTIFY a; ELSE NOTIFY b; END IF; END $$`,
      `DO $$ BEGIN IF x THEN NOTIFY "${SCHEMA}:a"; ELSE NOTIFY "${SCHEMA}:b"; END IF; END $$`,
    ],
    [`DO 'BEGIN NOTIFY it; END'`, `DO 'BEGIN NOTIFY "${SCHEMA}:it"; END'`],
    [`DO $$ BEGIN EXECUTE 'NOTIFY a'; END $$`, `DO $$ BEGIN EXECUTE 'NOTIFY "${SCHEMA}:a"'; END $$`],
    [`LISTEN ${LONG}`, `LISTEN "${LONG_SERVER}"`],
    [`LISTEN "${LONG}"`, `LISTEN "${LONG_SERVER}"`],
    [`SELECT pg_notify('changes', 'public.x')`, `SELECT pg_notify('${SCHEMA}:changes', 'public.x')`],
    [`SELECT pg_catalog.PG_NOTIFY ( E'a\\'b', $1 )`, `SELECT pg_catalog.PG_NOTIFY ( E'${SCHEMA}:a\\'b', $1 )`],
    [`SELECT "pg_notify"('a', 'x')`, `SELECT "pg_notify"('${SCHEMA}:a', 'x')`],
    [`SELECT pg_notify($$a$$, '')`, `SELECT pg_notify($$${SCHEMA}:a$$, '')`],
    [`SELECT pg_notify('${LONG}', '')`, `SELECT pg_notify('${LONG_SERVER}', '')`],
    [`SELECT pg_notify($1, $2)`, `SELECT pg_notify('${SCHEMA}:' || ($1), $2)`],
    [`SELECT pg_notify('a' || f(1, 2), 'x')`, `SELECT pg_notify('${SCHEMA}:' || ('a' || f(1, 2)), 'x')`],
    [`SELECT pg_notify((ARRAY['a', 'b'])[1], 'x')`, `SELECT pg_notify('${SCHEMA}:' || ((ARRAY['a', 'b'])[1]), 'x')`],
    [`DO $$ BEGIN PERFORM pg_notify(TG_ARGV[0], x); END $$`, `DO $$ BEGIN PERFORM pg_notify('${SCHEMA}:' || (TG_ARGV[0]), x); END $$`],
    [`DO 'BEGIN PERFORM pg_notify(c, ''x''); END'`, `DO 'BEGIN PERFORM pg_notify(''${SCHEMA}:'' || (c), ''x''); END'`],
    [`DO 'BEGIN PERFORM pg_notify(''c'', ''x''); END'`, `DO 'BEGIN PERFORM pg_notify(''${SCHEMA}:c'', ''x''); END'`],
  ])('%s', (sent, wanted) => {
    expect(rewriteSql(sent, PLACE).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), PLACE).sql.toString()).toBe(wanted);
  });
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
    `SELECT pg_notify(), pg_notify('', 'x')`,
    `SELECT pg_notify('${'x'.repeat(64)}', 'longer than a name can be: refused by the server')`,
    `-- LISTEN a\nSELECT 'LISTEN a'`,
    `LISTEN "${SCHEMA}:a"; SELECT pg_notify('${SCHEMA}:a', 'x'), pg_notify('${SCHEMA}:' || ($1), 'x')`,
    `NOTIFY; LISTEN; LISTEN 'a'; LISTEN a b`,
  ])('%s', (text) => expect(rewriteSql(text, PLACE)).toMatchObject({ sql: text, edits: [] }));
});

describe('the name of a channel', () => {
  it.each(['changes', 'My Changes', 'org:x', '~x', 'ä'.repeat(23), 'x'.repeat(46)])('%s comes back', (name) => {
    const server = serverChannel(name, SCHEMA);
    expect(server).toBe(`${SCHEMA}:${name}`);
    expect(clientChannel(server, SCHEMA)).toBe(name);
  });

  it('that does not fit into 63 bytes comes back to the session that used it', () => {
    const { longChannels } = rewriteSql(Buffer.from(`LISTEN ${LONG}`), PLACE);
    expect([...longChannels]).toEqual([[LONG_SERVER, LONG]]);
    expect(clientChannel(LONG_SERVER, SCHEMA, longChannels)).toBe(LONG);
    expect(Buffer.byteLength(LONG_SERVER)).toBeLessThanOrEqual(63);
  });

  it('is cut to 63 bytes between characters, as the server would', () => {
    const [channel] = rewriteSql(Buffer.from(`LISTEN ${'ä'.repeat(40)}`), PLACE).longChannels;
    expect(channel).toEqual([serverChannel('ä'.repeat(31), SCHEMA), 'ä'.repeat(31)]);
  });

  it.each(['changes', 'org_aaaaaaaaaaaa:changes', `${SCHEMA}x:changes`, SCHEMA, `x${SCHEMA}:changes`])(
    'of another organization is told to nobody: %s',
    (name) => expect(clientChannel(name, SCHEMA)).toBeUndefined(),
  );
});
