import { describe, expect, it } from 'vitest';
import { clientSearchPath, serverSearchPath } from '../../../src/rewriting/names.ts';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { marked, SCHEMA, TARGET } from './marked.ts';

describe('rewrites settings', () => {
  it.each([
    `SET search_path = «public»`,
    `SET search_path TO «public»`,
    `set SEARCH_PATH to «PUBLIC»`,
    `SET SESSION search_path TO "$user", «public», extensions`,
    `SET LOCAL search_path = other, "«public»"`,
    `SET search_path='«public»'`,
    `SET "search_path" TO "«public»", E'«public»', $$«public»$$`,
    `SET/**/search_path/* public */=/* public */«public»/**/,/**/«public»`,
    `SET search_path = "Public", '"public"', 'PUBLIC', 'public, other', «public»`,
    `SET search_path TO DEFAULT; SET search_path TO «public»;SET search_path=«public»`,
    `BEGIN; SET LOCAL search_path TO «public»; SELECT public FROM «public».t; COMMIT`,
    `SET SCHEMA '«public»'`,
    `SET LOCAL SCHEMA '«public»'`,
    `ALTER ROLE me SET search_path = «public», other`,
    `ALTER ROLE me IN DATABASE d SET search_path TO '«public»'`,
    `ALTER DATABASE d SET search_path = "$user", «public»`,
    `ALTER FUNCTION «public».f() SET search_path = «public»`,
    `ALTER FUNCTION «public».update(int) SET search_path = «public»`,
    `SELECT set_config('search_path', '«public»', false)`,
    `SELECT pg_catalog.set_config('search_path', '"$user", «public»,other,"«public»"', true)`,
    `SELECT SET_CONFIG ( 'SEARCH_PATH' , E'«public»' , false )`,
    `SELECT set_config('search_path', current_setting('search_path') || ',«public»', false)`,
    `SELECT set_config('search_path', '«public», ' || current_setting('search_path'), false)`,
    `SELECT set_config('application_name', 'public', false), set_config('search_path', '«public»', false), 'public'`,
    `SELECT x FROM t FOR UPDATE; SET search_path = «public»`,
    `CREATE TRIGGER t BEFORE UPDATE ON x EXECUTE FUNCTION f(); SET search_path = «public»`,
  ])('%s', (text) => {
    const { sent, wanted } = marked(text);
    expect(rewriteSql(sent, TARGET).sql).toBe(wanted);
    expect(rewriteSql(Buffer.from(sent), TARGET).sql.toString()).toBe(wanted);
  });
});

describe('does not touch other settings', () => {
  it.each([
    `SET application_name = public`,
    `SET search_path = "Public", other`,
    `SET search_path FROM CURRENT; SELECT public`,
    `RESET search_path; SHOW search_path; SELECT public`,
    `SELECT current_setting('search_path') = 'public'`,
    `SELECT set_config($1, 'public', false), set_config('public', $1, false)`,
    `SET ROLE public; SET SESSION AUTHORIZATION 'public'; SET "public.x" = 'public'`,
    `ALTER TABLE t SET (search_path = public)`,
  ])('%s', (text) => expect(rewriteSql(text, TARGET)).toMatchObject({ sql: text, edits: [] }));
});

describe('the value of search_path', () => {
  it.each([
    ['public', SCHEMA],
    ['"$user", public', `"$user", ${SCHEMA}`],
    ['"$user",public', `"$user",${SCHEMA}`],
    ['$user, PUBLIC , "public"', `$user, ${SCHEMA} , "${SCHEMA}"`],
    ['other,"Public","pub""lic",publicity', 'other,"Public","pub""lic",publicity'],
    ['"a, public", public', `"a, public", ${SCHEMA}`],
    ['', ''],
    ['"public', '"public'],
  ])('a client sends %s', (client, server) => expect(serverSearchPath(client, SCHEMA)).toBe(server));

  it.each([
    [SCHEMA, 'public'],
    [`"$user", ${SCHEMA}`, '"$user", public'],
    [`pg_temp, "${SCHEMA}",other`, 'pg_temp, "public",other'],
    [`${SCHEMA}x, x${SCHEMA}, ""`, `${SCHEMA}x, x${SCHEMA}, ""`],
    ['', ''],
  ])('a client reads back %s', (server, client) => expect(clientSearchPath(server, SCHEMA)).toBe(client));
});
