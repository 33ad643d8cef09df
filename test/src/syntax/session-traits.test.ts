import { describe, expect, it } from 'vitest';
import { deallocatedNames, isPreparable, sessionTraitsOf } from '../../../src/syntax/session-traits.ts';
import { mayShare, sideEffectsOf } from '../../../src/syntax/side-effects.ts';

/** Where each place were read from each other one, this would take minutes. */
const CHARACTERS = 262_144;
const BOUND_MS = 20_000;

describe('a look at a text', () => {
  it.each([
    ['line breaks', '', '\n'],
    ['a string with line breaks behind it', "select 'a'", '\n'],
    ['a dash behind the other', 'set ', '-'],
    ['statements that take no name away', '', 'deallocate '],
    ['explained statements that execute nothing', '', ';explain '],
    ['a long name', 'select ', 'a'],
    ['white space behind a name', 'select a', ' '],
    ['blocks', '', 'begin\n'],
    ['quotes', 'select ', "'"],
    ['settings', '', ';set a.b=1'],
    ['a setting of many parts', 'set a', '.a'],
    ['settings of which no more than the beginning is there', '', ';set a.'],
    ['updates', '', 'update '],
    ['calls in calls', 'select ', 'set_config('],
    ['calls behind quotes', 'select ', "set_config('"],
    ['calls between quotes', "select '", "set_config('' "],
    ['calls behind quotes of both kinds', 'select ', `set_config('"`],
    ['calls with a string', 'select ', "set_config('a', "],
    ['local calls', 'select ', "set_config('a.b', '', true),"],
    ['a long call', 'select set_config(', '1+'],
    ['calls that may end', 'select ', 'set_config((),true,'],
    ['names with escapes', 'select u&"', '\\0041'],
  ])('takes time in proportion to it: %s', (_, beginning, repeated) => {
    const text = beginning + repeated.repeat(CHARACTERS / repeated.length);
    const before = process.cpuUsage();
    isPreparable(text, sessionTraitsOf(text));
    deallocatedNames(text);
    sideEffectsOf(text);
    mayShare(text);
    mayShare(`select ${text}`);
    expect(process.cpuUsage(before).user / 1_000).toBeLessThan(BOUND_MS);
  });

  it.each([
    ['set a = 1', true],
    ['select 1;\n\n set a = 1', true],
    ['select 1 -- a comment\n set a = 1', true],
    ['select 1 -- a comment\rset a = 1', true],
    ['/* a comment */ reset a', true],
    ["update pg_settings set setting = '1' where name = 'a'", true],
    ['update only "pg_catalog" . "pg_settings" set setting = 1', true],
    ['select * from pg_settings', false],
    ['do $$ begin\nset a = 1; end $$', true],
    ['begin; set local a = 1', false],
    ['update t\n set a = 1', false],
    ['select 1 as "set"', false],
    ["select set_config('a.b', '1', true)", false],
    ["select set_config('a.b', lower($1), true), set_config($2, 'x', true)", false],
    ["select set_config('a.b', ', true)', false)", true],
    ["select set_config('a.b', '1', /* , true) */ false)", true],
    ["select 'set_config(', set_config('a.b', '1', false), ', true)'", true],
    ["select set_config('a.b', '\\', true) --', false)", true],
    ['set local a.b = 1', false],
    ['set local.b = 1', true],
    ['set transaction .b = 1', true],
    ['set constraints /**/ .b = 1', true],
    ['update /**/ pg_settings set setting = 1', true],
    ["select U&\"set\\005fconfig\"('a.b', '1', false)", true],
    ["select U&\"set!005fconfig\" uescape '!' ('a.b', '1', false)", true],
    ['select 1 from U&"d\\0061t\\+000061"', false],
  ])('tells where a statement begins that changes the session: %j', (text, leavesState) => {
    expect(sessionTraitsOf(text).leavesState).toBe(leavesState ? 'yes' : 'unknown');
  });

  it.each([
    ['execute a', true],
    ['explain (analyze) execute a', true],
    ['explain\nexecute a', true],
    ['create table t as execute a', true],
    ['select 1; explain select 1', false],
    ['grant execute on function f to r', false],
  ])('tells who speaks of prepared statements: %j', (text, namesPrepared) => {
    expect(sessionTraitsOf(text).namesPrepared).toBe(namesPrepared);
  });

  it.each([
    ['deallocate all', true],
    ['select 1; discard\nall', true],
    ['deallocate a', false],
    ['select all 1; deallocate a', false],
  ])('tells who takes all of them away: %j', (text, deallocatesAll) => {
    expect(sessionTraitsOf(text).deallocatesAll).toBe(deallocatesAll);
  });

  it.each([
    ["set a.b = 1; set session a.\"B\" to 1; select set_config('a.c.d', '1', false)", ['a.b', 'a.c.d'], false],
    ['set a.b.c = 1', ['a.b.c'], false],
    ['set search_path to "a.b", c.d', [], false],
    ["select set_config('work_mem', $1, false)", [], false],
    ['update t set a = b.c', [], false],
    ['set a /* comment */ .b = 1', [], true],
    ['set /* comment */ a.b = 1', [], true],
    ['set gr\u00c3\u00b6\u00c3\u009fe.a = 1', [], true],
    ["select set_config('a.' || b, '1', false) from c", [], true],
    ["select set_config('a.gr\u00c3\u00b6\u00c3\u009fe', '1', false)", [], true],
    ['select set_config($1, $2, false)', [], true],
    ["set local$a.b = 'x'", ['local$a.b'], false],
    ["select \"set_config\"('a.b', '1', false)", [], true],
    ["select set_config/**/('a.b', '1', false)", [], true],
    ["select U&\"set\\005fconfig\"('a.b', '1', false)", [], true],
    ["select query_to_xml('select set_config(''a.b'', '', true)'', false)', true, false, '')", [], true],
  ])('tells which settings of the client it sets: %j', (text, customSettings, setsUnknownSettings) => {
    expect(sessionTraitsOf(text)).toMatchObject({ customSettings, setsUnknownSettings });
  });

  it.each([
    ['update t set id = default', true],
    ['insert into t values (1)', true],
    ['update t set id = 1', false],
    ['set a to default', false],
  ])('tells who may make sequences move: %j', (text, advancesSequences) => {
    expect(sessionTraitsOf(text).advancesSequences).toBe(advancesSequences);
  });

  it.each([
    ['select lastval()', true],
    ['select "currval" (\'q\')', true],
    ['select pg_catalog.lastval/**/()', true],
    ['do $$ begin perform lastval(); end $$', true],
    ['select 1 as lastval', false],
    ["select 'lastval'", false],
    ["select nextval('q')", false],
  ])('tells who calls for the last value of a sequence: %j', (text, callsSequenceFunction) => {
    expect(sessionTraitsOf(text).callsSequenceFunction).toBe(callsSequenceFunction);
  });

  it.each([
    ['set seed = 0.5', true],
    ['begin; set local seed to 0.5', true],
    ["select set_config('seed', '0.5', false)", true],
    ['update t set seed = 1', false],
    ['select seed from t', false],
  ])('tells who sets where random numbers begin: %j', (text, seedsRandom) => {
    expect(sessionTraitsOf(text).seedsRandom).toBe(seedsRandom);
  });

  it.each([
    ['show search_path;', 'search_path'],
    ['explain select 1', 'plan'],
    ['-- a comment\n /* another */ Explain (verbose) select \';\' as ";" ; ', 'plan'],
    ['explain execute p(1)', 'plan'],
    ['explain select 1; select 2', undefined],
    ['select 1; explain select 2', undefined],
    ['select 1 as explain', undefined],
    [`explain select '${'a'.repeat(65_536)}'`, undefined],
  ])('tells whose rows are changed for the client: %.60j', (text, shows) => {
    expect(sessionTraitsOf(text).shows).toBe(shows);
  });

  it('follows settings of the client only where there are few', () => {
    const few = sessionTraitsOf("set a.b = 1; set a.b = 2; select set_config('c.d', '1', false)");
    expect(few).toMatchObject({ customSettings: ['a.b', 'c.d'], setsUnknownSettings: false });
    const many = sessionTraitsOf(Array.from({ length: 1_000 }, (_, i) => `set a.b${i} = 1`).join(';'));
    expect(many).toMatchObject({ customSettings: [], setsUnknownSettings: true });
    expect(sessionTraitsOf('set a.b = 1;'.repeat(1_001))).toMatchObject({ customSettings: [], setsUnknownSettings: true });
  });
});
