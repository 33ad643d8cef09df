import { describe, expect, it } from 'vitest';
import { type ProcessIds, translateProcessIds } from '../../proxy/process-ids.ts';

const ids: ProcessIds = {
  own: 20_000_001,
  addresses: { inet_client_addr: '192.0.2.7', inet_client_port: 50_000, inet_server_addr: '2001:db8::1', inet_server_port: null },
  areShown: false,
  shown: () => '[]',
  backendOf: (id) => (id === 20_000_002 ? 4711 : undefined),
  signal: () => undefined,
  moved() {},
  userOf: () => undefined,
};

function translated(text: string): string {
  return translateProcessIds(text, ids).text;
}

describe('SQL that speaks of process ids', () => {
  it.each([
    [
      'select inet_client_addr(), INET_CLIENT_PORT ( ), pg_catalog.inet_server_addr()',
      "select (SELECT '192.0.2.7'::pg_catalog.inet AS inet_client_addr), (SELECT '50000'::pg_catalog.int4 AS inet_client_port), (SELECT '2001:db8::1'::pg_catalog.inet AS inet_server_addr)",
    ],
    ['select * from inet_server_port()', 'select * from (SELECT NULL::pg_catalog.int4 AS inet_server_port) AS inet_server_port'],
    ['select pg_backend_pid()', 'select (SELECT 20000001 AS pg_backend_pid)'],
    ['select pg_catalog.pg_backend_pid ( )', 'select (SELECT 20000001 AS pg_backend_pid)'],
    ['select * from pg_stat_activity where pid = 20000002', 'select * from pg_stat_activity where pid = 4711'],
    ["select * from pg_stat_activity where pid='20000002'", 'select * from pg_stat_activity where pid=4711'],
    ['select pid from pg_stat_activity where pid <> pg_backend_pid()', 'select pid from pg_stat_activity where pid <> pg_backend_pid()'],
    ['select pg_terminate_backend(pg_backend_pid())', 'select pg_terminate_backend(pg_backend_pid())'],
    ['select pg_terminate_backend((pg_backend_pid())::int, 10)', 'select pg_terminate_backend((pg_backend_pid())::int, 10)'],
    ['select "pg_backend_pid"()', 'select (SELECT 20000001 AS pg_backend_pid)'],
    ['select * from pg_backend_pid()', 'select * from (SELECT 20000001 AS pg_backend_pid) AS pg_backend_pid'],
    ['select * from pg_backend_pid() where true', 'select * from (SELECT 20000001 AS pg_backend_pid) AS pg_backend_pid where true'],
    ['select * from pg_backend_pid() p', 'select * from (SELECT 20000001 AS pg_backend_pid) p'],
    [
      'create table t (pid int default pg_backend_pid()); insert into t select pg_backend_pid()',
      'create table t (pid int default pg_backend_pid()); insert into t select (SELECT 20000001 AS pg_backend_pid)',
    ],
    [
      '/* now */ create temp table t (pid) as select pg_backend_pid()',
      '/* now */ create temp table t (pid) as select (SELECT 20000001 AS pg_backend_pid)',
    ],
    // Who is meant is found out by the server, which knows its own ids.
    ['select pg_cancel_backend(p) from (select pg_backend_pid() p) s', 'select pg_cancel_backend(p) from (select pg_backend_pid() p) s'],
    [
      'select pg_terminate_backend(20000002), pg_backend_pid()',
      'select (SELECT true AS pg_terminate_backend), (SELECT 20000001 AS pg_backend_pid)',
    ],
  ])('%s', (text, expected) => {
    expect(translated(text)).toBe(expected);
  });

  it.each([
    ['select pid from pg_stat_activity where pid = 20000002', true, 'select pid from pg_stat_activity where pid = 20000002'],
    [
      'select 1 from "pg_stat_ssl" where pid = pg_backend_pid()',
      true,
      'select 1 from "pg_stat_ssl" where pid = (SELECT 20000001 AS pg_backend_pid)',
    ],
    [
      'delete from jobs where pid = 20000002 and pid <> pg_backend_pid()',
      false,
      'delete from jobs where pid = 20000002 and pid <> (SELECT 20000001 AS pg_backend_pid)',
    ],
    ['select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()', false, undefined],
    ['select pid from pg_stat_activity; select pg_cancel_backend(p) from q p', false, undefined],
    [
      'select pg_cancel_backend($1) from pg_stat_activity where pid = $1',
      true,
      'select (SELECT CASE WHEN $1::int4 > 4194304 THEN true ELSE pg_catalog.pg_cancel_backend($1::int4) END AS pg_cancel_backend) from pg_stat_activity where pid = $1',
    ],
    ["select 'pg_stat_activity', pg_backend_pid()", false, "select 'pg_stat_activity', (SELECT 20000001 AS pg_backend_pid)"],
  ])('has the views of activity told of sessions, unless the server finds whom a signal is for: %s', (text, lists, expected = text) => {
    const { text: sent, listsSessions } = translateProcessIds(text, { ...ids, areShown: true });
    expect([sent, listsSessions]).toEqual([expected, lists]);
  });

  it('has the signals sent that it asks for', () => {
    const canceled = translateProcessIds('select pg_cancel_backend(20000002)', ids);
    expect(canceled.text).toBe('select (SELECT true AS pg_cancel_backend)');
    expect(canceled.due).toEqual([{ processId: 20_000_002, signal: 'cancel' }]);
    const terminated = translateProcessIds("select pg_terminate_backend('20000002')", ids);
    expect(terminated.text).toBe('select (SELECT true AS pg_terminate_backend)');
    expect(terminated.due).toEqual([{ processId: 20_000_002, signal: 'terminate' }]);
    const unknown = 'select pg_cancel_backend(20000009)';
    expect(translateProcessIds(unknown, ids)).toEqual({ text: unknown, signals: [], due: [], listsSessions: false });
    const { text, signals } = translateProcessIds('select pg_cancel_backend($1)', ids);
    expect(text).toBe(
      'select (SELECT CASE WHEN $1::int4 > 4194304 THEN true ELSE pg_catalog.pg_cancel_backend($1::int4) END AS pg_cancel_backend)',
    );
    expect(signals).toEqual([{ parameter: 1, signal: 'cancel' }]);
  });

  it.each([
    ['20000002, 5000', ''],
    ["'20000002', 5 * 1000", ' WHERE (5 * 1000)::int8 IS NOT NULL'],
    ['(20000002)::int, least(1, 2)', ' WHERE (least(1, 2))::int8 IS NOT NULL'],
    ['pid => 20000002, timeout => 5000', ''],
    ['timeout := $2, pid := 20000002', ' WHERE ($2)::int8 IS NOT NULL'],
  ])('ends a session however that is written: pg_terminate_backend(%s)', (given, condition) => {
    for (const name of [
      'pg_terminate_backend',
      'pg_catalog.PG_TERMINATE_BACKEND',
      '"pg_terminate_backend"',
      'pg_catalog . pg_terminate_backend',
    ])
      expect(translateProcessIds(`select ${name} (${given})`, ids)).toEqual({
        text: `select (SELECT true AS pg_terminate_backend${condition})`,
        due: [{ processId: 20_000_002, signal: 'terminate' }],
        signals: [],
        listsSessions: false,
      });
    const asked = translateProcessIds('select pg_terminate_backend(timeout => $2, pid => $1::int)', ids);
    expect(asked.signals).toEqual([{ parameter: 1, signal: 'terminate' }]);
    expect(asked.text).toBe(
      'select (SELECT CASE WHEN $1::int4 > 4194304 THEN true ELSE pg_catalog.pg_terminate_backend($1::int4, $2) END AS pg_terminate_backend WHERE ($2)::int8 IS NOT NULL)',
    );
  });

  it.each([
    ['select pg_blocking_pids(20000002)', 'select @(20000002)#'],
    ['select PG_CATALOG . "pg_blocking_pids" ($1::int), 1', 'select @($1::int)#, 1'],
    ['select * from pg_blocking_pids(20000001)', 'select * from @(20000001)# AS pg_blocking_pids'],
    ['select pg_blocking_pids(pid) from pg_stat_activity', 'select @(pid)# from pg_stat_activity'],
    ['select pg_blocking_pids(pg_backend_pid())', 'select @((SELECT 20000001 AS pg_backend_pid))#'],
    [`select ${'pg_blocking_pids(1),'.repeat(17)}1`, `select ${'@(1)#,'.repeat(16)}pg_blocking_pids(1),1`],
    ['create view v as select pg_blocking_pids(1)', 'create view v as select pg_blocking_pids(1)'],
    ["select 'pg_blocking_pids(1)'", "select 'pg_blocking_pids(1)'"],
  ])('has who blocks whom in the place of a call: %s', (text, expected) => {
    const blockers = new Map([[20_000_002, [20_000_001, 0]]]);
    const [begin, end] = [
      '(SELECT CASE ',
      `::pg_catalog.int4 WHEN 20000002 THEN '{20000001,0}'::pg_catalog.int4[] ELSE '{}'::pg_catalog.int4[] END AS pg_blocking_pids)`,
    ];
    expect(translateProcessIds(text, ids, undefined, blockers).text).toBe(expected.replaceAll('@', begin).replaceAll('#', end));
    expect(translateProcessIds('select pg_blocking_pids(1)', ids).text).toBe('select pg_blocking_pids(1)');
  });

  it.each([
    "insert into notes values ('pg_backend_pid() is 20000002', E'it\\'s pg_backend_pid()', $$pg_backend_pid()$$)",
    "select 'pg_cancel_backend(20000002)', U&'pg_cancel_backend($1)'",
    'create table t (peer inet default inet_client_addr())',
    'select 1 as "pg_backend_pid()" -- pg_backend_pid()',
    'select /* pg_terminate_backend(20000002) */ 1',
    'do $$ begin perform pg_terminate_backend(20000002); end $$',
    'create function f() returns int4 language sql return pg_backend_pid()',
    'create table t (pid int4 default pg_backend_pid())',
    'alter table t alter pid set default pg_backend_pid()',
    '/* now */ create table t (a int generated always as (pg_backend_pid()) stored)',
    'create function f() returns int4 begin atomic select pg_backend_pid(); select pg_backend_pid(); end',
  ])('what stays behind, or only looks like it, is left as it is: %s', (text) => {
    expect(translateProcessIds(text, ids)).toEqual({ text, signals: [], due: [], listsSessions: false });
  });
});
