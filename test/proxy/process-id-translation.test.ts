import { describe, expect, it } from 'vitest';
import { type ProcessIds, translateProcessIds } from '../../proxy/process-ids.ts';

const ids: ProcessIds = {
  own: 20_000_001,
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
    ['select pg_backend_pid()', 'select (SELECT 20000001 AS pg_backend_pid)'],
    ['select pg_catalog.pg_backend_pid ( )', 'select (SELECT 20000001 AS pg_backend_pid)'],
    ['select * from pg_stat_activity where pid = 20000002', 'select * from pg_stat_activity where pid = 4711'],
    ["select * from pg_stat_activity where pid='20000002'", 'select * from pg_stat_activity where pid=4711'],
    ['select pid from pg_stat_activity where pid <> pg_backend_pid()', 'select pid from pg_stat_activity where pid <> pg_backend_pid()'],
    ['select pg_terminate_backend(pg_backend_pid())', 'select pg_terminate_backend(pg_backend_pid())'],
  ])('%s', (text, expected) => {
    expect(translated(text)).toBe(expected);
  });

  it('has the signals sent that it asks for', () => {
    const canceled = translateProcessIds('select pg_cancel_backend(20000002)', ids);
    expect(canceled.text).toBe('select (SELECT true AS pg_cancel_backend)');
    expect(canceled.due).toEqual([{ processId: 20_000_002, signal: 'cancel' }]);
    const terminated = translateProcessIds("select pg_terminate_backend('20000002')", ids);
    expect(terminated.text).toBe('select (SELECT true AS pg_terminate_backend)');
    expect(terminated.due).toEqual([{ processId: 20_000_002, signal: 'terminate' }]);
    const unknown = 'select pg_cancel_backend(20000009)';
    expect(translateProcessIds(unknown, ids)).toEqual({ text: unknown, signals: [], due: [] });
    const { text, signals } = translateProcessIds('select pg_cancel_backend($1)', ids);
    expect(text).toBe('select (SELECT $1::int4 IS NOT NULL AS pg_cancel_backend)');
    expect(signals).toEqual([{ parameter: 1, signal: 'cancel' }]);
  });

  it.each([
    "insert into notes values ('pg_backend_pid() is 20000002', E'it\\'s pg_backend_pid()', $$pg_backend_pid()$$)",
    "select 'pg_cancel_backend(20000002)', U&'pg_cancel_backend($1)'",
    'select 1 as "pg_backend_pid()" -- pg_backend_pid()',
    'select /* pg_terminate_backend(20000002) */ 1',
    'do $$ begin perform pg_terminate_backend(20000002); end $$',
    'create function f() returns int4 language sql return pg_backend_pid()',
    'create table t (pid int4 default pg_backend_pid())',
    'alter table t alter pid set default pg_backend_pid()',
  ])('what stays behind, or only looks like it, is left as it is: %s', (text) => {
    expect(translateProcessIds(text, ids)).toEqual({ text, signals: [], due: [] });
  });
});
