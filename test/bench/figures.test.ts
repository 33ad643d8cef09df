import { expect, test } from 'vitest';
import { readOptions } from './options.ts';
import { type Goal, judge } from './reach.ts';
import { figuresTable } from './report.ts';
import { interleave, type Series } from './series.ts';
import { stallsIn } from './stalls.ts';
import { ratioOf, spreadOf } from './statistics.ts';
import { figure, spread, table } from './table.ts';

test('the median is the middle one, or the mean of the two in the middle', () => {
  expect(spreadOf([])).toBeUndefined();
  expect(spreadOf([Number.NaN])).toBeUndefined();
  expect(spreadOf([7])).toEqual({ median: 7, min: 7, max: 7 });
  expect(spreadOf([10, 9, 100])).toEqual({ median: 10, min: 9, max: 100 });
  expect(spreadOf([4, 1, 3, 2])).toEqual({ median: 2.5, min: 1, max: 4 });
});

test('a ratio is that of each round, so that a machine that gets slower does not change it', () => {
  expect(ratioOf([200, 100, 50], [100, 50, 25])).toEqual({ median: 2, min: 2, max: 2 });
  expect(ratioOf([200, Number.NaN, 50], [100, 50])).toEqual({ median: 2, min: 2, max: 2 });
  expect(ratioOf([1], [0])).toBeUndefined();
});

test('figures have the digits that mean something', () => {
  expect([38112.4, 123.4, 12.34, 1.234, 0].map(figure)).toEqual(['38,112', '123', '12.3', '1.23', '0.00']);
  expect(spread({ median: 2, min: 1, max: 30 })).toBe('2.00 (1.00–30.0)');
  expect(spread(undefined)).toBe('n/a');
});

test('a table is Markdown with its columns in line', () => {
  expect(table(['peer', 'tps'], [['Postgres', '1,000'], ['x']])).toBe(
    ['| peer     |   tps |', '| -------- | ----: |', '| Postgres | 1,000 |', '| x        |       |'].join('\n'),
  );
});

test('peers are measured in turn, A B A B', async () => {
  const order: string[] = [];
  const rounds = { scenario: 'wire', case: '8 clients', rounds: 2, signal: new AbortController().signal };
  const series = await interleave(rounds, [{ name: 'A' }, { name: 'B' }], async ({ name }) => ({ tps: order.push(name) }));
  expect(order).toEqual(['A', 'B', 'A', 'B']);
  expect(series).toEqual([
    {
      scenario: 'wire',
      case: '8 clients',
      unit: 'tps',
      figures: new Map([
        ['A', [1, 3]],
        ['B', [2, 4]],
      ]),
    },
  ]);
});

test('one that is told to stop measures nothing more', async () => {
  const rounds = { scenario: 'wire', case: '8 clients', rounds: 2, signal: AbortSignal.abort(new Error('enough')) };
  await expect(interleave(rounds, [{ name: 'A' }], async () => ({ tps: 1 }))).rejects.toThrow('enough');
});

test('Postern is compared with every peer of a case', () => {
  const lines = figuresTable([seriesOf('tps', { PgBouncer: [100, 200], Postern: [150, 300] })]).split('\n');
  expect(lines[2]).toBe('| 32 clients, tps | 150 (100–200) | 225 (150–300) |');
  expect(lines[3]).toBe('| Postern to it   |        × 1.50 |               |');
});

const GOAL: Goal = { text: 'tps', scenarios: ['wire'], unit: 'tps', to: ['A', 'B'], is: 'at least', must: 0.8, aim: 1 };

test('what Postern reaches is held against the best of the peers', () => {
  const [verdict] = judge([seriesOf('tps', { A: [100], B: [200], Postern: [180] })], [GOAL]);
  expect(verdict).toMatchObject({ case: '32 clients', value: 0.9, must: 'met', aim: 'not met' });
});

test('where the peer is not there, nothing is claimed', () => {
  expect(judge([seriesOf('tps', { Postern: [180] })], [GOAL])).toMatchObject([{ must: 'n/a', aim: 'n/a' }]);
  expect(judge([seriesOf('tps', { A: [180] })], [GOAL])).toEqual([]);
});

test('the longest of all rounds counts, and a peer can be the aim', () => {
  const goal: Goal = { text: 'longest', scenarios: ['wire'], unit: 'ms', is: 'at most', must: 50, aim: 'A', worst: true };
  const verdicts = judge([seriesOf('ms', { A: [20, 30, 10], Postern: [5, 40, 6] })], [goal]);
  expect(verdicts).toMatchObject([{ value: 40, must: 'met', aim: 'not met' }]);
});

test('stalls are found in what pgbench logs', () => {
  const log = ['1 1 5000 0 1700000000 10000', '0 1 60000 0 1700000000 90000', '1 2 15000 0 1700000000 80000', ''].join('\n');
  expect(stallsIn(log)).toEqual({ 'ms longest': 60, 'others meanwhile': 1, 'ms p50': 15, 'ms p99': 60, '% in > 20 ms': 75 });
});

test('results are only written where everything was measured, or where told', () => {
  expect(readOptions([]).out).toBe('test/bench/results.md');
  expect(readOptions(['wire-simple', '--rounds', '7'])).toMatchObject({ out: undefined, rounds: 7, scenarios: ['wire-simple'] });
  expect(readOptions(['--quick'])).toMatchObject({ out: undefined, clients: [32] });
  expect(readOptions(['wire', '--threads', '2'])).toMatchObject({ threads: 2, rounds: 5 });
  expect(readOptions([]).threads).toBe(1);
  expect(() => readOptions(['--rounds', 'many'])).toThrow('--rounds: must be a whole number, not many');
});

function seriesOf(unit: string, figures: Readonly<Record<string, readonly number[]>>): Series {
  return { scenario: 'wire', case: '32 clients', unit, figures: new Map(Object.entries(figures)) };
}
