import { expect, it } from 'vitest';
import { readPlan } from '../../../http/console/screens/sql/read-plan.ts';

const scan = (more: object) => ({
  'Node Type': 'Seq Scan',
  'Relation Name': 'orders',
  Schema: 'public',
  Alias: 'o',
  'Plan Rows': 1_000,
  'Total Cost': 30,
  ...more,
});

it('what is no plan is none', () => {
  for (const other of [undefined, null, [], [{}], 'text', [{ Plan: 1 }]]) expect(readPlan(other)).toBeUndefined();
});

it('without ANALYZE, shares are those of the cost', () => {
  const plan = readPlan([{ Plan: { 'Node Type': 'Sort', 'Plan Rows': 10, 'Total Cost': 40, Plans: [scan({})] } }]);
  expect(plan?.root).toMatchObject({ title: 'Sort', share: 0.25, actualRows: undefined, totalMs: undefined });
  expect(plan?.root.children[0]).toMatchObject({ title: 'Seq Scan', target: 'orders as o', share: 0.75 });
});

it('the time of a node is that of all its loops, without its children', () => {
  const inner = scan({ 'Actual Total Time': 0.5, 'Actual Rows': 1, 'Actual Loops': 100 });
  const plan = readPlan([
    { Plan: { 'Node Type': 'Nested Loop', 'Plan Rows': 1, 'Actual Rows': 1, 'Actual Loops': 1, 'Actual Total Time': 80, Plans: [inner] } },
  ]);
  expect(plan?.root).toMatchObject({ totalMs: 80, selfMs: 30, share: 0.375 });
  expect(plan?.root.children[0]).toMatchObject({ totalMs: 50, selfMs: 50 });
});

it('parallel workers run at the same time', () => {
  const part = scan({ 'Parallel Aware': true, 'Actual Total Time': 40, 'Actual Rows': 300, 'Actual Loops': 3 });
  const gather = {
    'Node Type': 'Gather',
    'Workers Planned': 2,
    'Workers Launched': 2,
    'Plan Rows': 900,
    'Actual Rows': 900,
    'Actual Loops': 1,
    'Actual Total Time': 50,
    Plans: [part],
  };
  const plan = readPlan([{ Plan: gather }]);
  expect(plan?.root.children[0]).toMatchObject({ title: 'Parallel Seq Scan', totalMs: 40 });
  expect(plan?.root.selfMs).toBe(10);
});

it('warnings name estimates that are much too low, scans that keep little, and what goes to disk', () => {
  const warningsOf = (more: object) =>
    readPlan([{ Plan: scan({ 'Actual Total Time': 1, 'Actual Loops': 1, 'Actual Rows': 1_000, ...more }) }])?.root.warnings;
  expect(warningsOf({})).toEqual([]);
  expect(warningsOf({ 'Plan Rows': 10 })).toEqual(['100 times as many rows as estimated']);
  expect(warningsOf({ 'Plan Rows': 100_000, 'Actual Rows': 100 })).toEqual(['1,000 times fewer rows than estimated']);
  expect(warningsOf({ 'Plan Rows': 1, 'Actual Rows': 20 })).toEqual([]);
  expect(warningsOf({ 'Rows Removed by Filter': 99_000 })).toEqual(['reads 100,000 rows for 1,000: an index may help']);
  expect(warningsOf({ 'Node Type': 'Sort', 'Sort Space Type': 'Disk', 'Sort Space Used': 2_048 })).toEqual([
    'sorts on disk: 2 MB, more than work_mem',
  ]);
  expect(warningsOf({ 'Actual Loops': 0, 'Actual Rows': 0 })).toEqual([]);
});
