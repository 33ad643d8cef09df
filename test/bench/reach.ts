import type { Series } from './series.ts';
import { ratioOf, type Spread, spreadOf } from './statistics.ts';
import { figure, spread, table } from './table.ts';

/** What the bench is there to show: where Postern must stand, and where it should. */
export interface Goal {
  readonly text: string;
  readonly scenarios: readonly string[];
  readonly unit: string;
  /** Ratios to the best of these; Postern's own figures where there are none. */
  readonly to?: readonly string[];
  readonly is: 'at least' | 'at most';
  readonly must: number;
  /** A figure, or that of a peer. */
  readonly aim: number | string;
  /** Cases that count: all but these. */
  readonly without?: readonly string[];
  /** Cases that the aim is not for. */
  readonly aimWithout?: readonly string[];
  /** The worst of all rounds counts, not their median. */
  readonly worst?: boolean;
}

export interface Verdict {
  readonly goal: Goal;
  readonly case: string;
  /** What is held against the goal; undefined where it could not be measured. */
  readonly value: number | undefined;
  readonly found: Spread | undefined;
  readonly must: Outcome;
  readonly aim: Outcome;
}

export type Outcome = 'met' | 'not met' | 'n/a' | '';

const FEW = ['1 client', '8 clients'];

export const GOALS: readonly Goal[] = [
  { ...wire('simple'), must: 0.8, aim: 1.3, aimWithout: FEW },
  { ...wire('extended'), must: 1.2, aim: 2 },
  { ...wire('prepared'), must: 0.9, aim: 1.7, aimWithout: FEW },
  { text: '1,000 rows, to PgBouncer 64k', scenarios: ['rows'], unit: 'tps', to: ['PgBouncer 64k'], is: 'at least', must: 0.9, aim: 1 },
  { text: 'COPY out, to PgBouncer 64k', scenarios: ['copy'], unit: 'MB/s', to: ['PgBouncer 64k'], is: 'at least', must: 0.9, aim: 1 },
  {
    text: 'longest transaction, ms',
    scenarios: ['stalls'],
    unit: 'ms longest',
    without: ['beside 3 slow'],
    is: 'at most',
    must: 50,
    aim: 'PgBouncer',
    worst: true,
  },
  {
    text: '% of client time in transactions > 20 ms',
    scenarios: ['stalls'],
    unit: '% in > 20 ms',
    without: ['alone'],
    is: 'at most',
    must: 2,
    aim: 'PgBouncer',
  },
  { text: 'SCRAM logins, to PgBouncer', scenarios: ['logins'], unit: 'logins/s', to: ['PgBouncer'], is: 'at least', must: 0.6, aim: 1 },
  { text: 'kB an idle client', scenarios: ['idle'], unit: 'kB/client', is: 'at most', must: 20, aim: 8 },
  {
    text: 'CPU of a prepared transaction, to PgBouncer',
    scenarios: ['wire-prepared'],
    unit: 'µs CPU',
    to: ['PgBouncer'],
    without: ['1 client', '8 clients', '64 clients'],
    is: 'at most',
    must: 1.5,
    aim: 0.9,
  },
  { ...http('point SELECT', 'http-point'), to: ['Fastify + pg'], must: 2, aim: 3.5, without: ['1 client', '8 clients', '64 clients'] },
  {
    ...http('point SELECT', 'http-point'),
    text: 'HTTP point SELECT, to the best of pg, postgres',
    to: ['Fastify + pg', 'pg, named', 'pg, named, 4', 'Fastify + postgres', 'postgres, 4'],
    must: 1.3,
    aim: 2,
    without: ['1 client', '8 clients', '64 clients'],
  },
  { ...http('100 rows', 'http-100'), must: 1.8, aim: 2.8 },
  { ...http('10,000 rows', 'http-10000'), must: 1.8, aim: 2.8 },
  {
    text: '500 MB over HTTP: MB above idle',
    scenarios: ['http-large'],
    unit: 'MB above idle',
    is: 'at most',
    must: 64,
    aim: 24,
    worst: true,
  },
];

function wire(mode: string): Goal {
  return {
    text: `wire, ${mode}, to PgBouncer`,
    scenarios: [`wire-${mode}`],
    unit: 'tps',
    to: ['PgBouncer'],
    without: ['1 client'],
    is: 'at least',
    must: 0,
    aim: 0,
  };
}

function http(what: string, scenario: string): Goal {
  const text = `HTTP ${what}, to Fastify + pg`;
  return { text, scenarios: [scenario], unit: 'req/s', to: ['Fastify + pg'], is: 'at least', must: 0, aim: 0 };
}

/** @returns one for each goal and each case of it that was measured with Postern */
export function judge(series: readonly Series[], goals: readonly Goal[] = GOALS): Verdict[] {
  return goals.flatMap((goal) =>
    series
      .filter((one) => goal.scenarios.includes(one.scenario) && one.unit === goal.unit && !goal.without?.includes(one.case))
      .flatMap((one) => (one.figures.has(POSTERN) ? [judgeOne(goal, one)] : [])),
  );
}

export const POSTERN = 'Postern';

function judgeOne(goal: Goal, { case: label, figures }: Series): Verdict {
  const found = standing(goal, figures);
  const value = held(goal, found);
  const aim = typeof goal.aim === 'number' ? goal.aim : held(goal, spreadOf(figures.get(goal.aim) ?? []));
  const outcome = (bound: number | undefined): Outcome => {
    if (value === undefined || bound === undefined) return 'n/a';
    return (goal.is === 'at least' ? value >= bound : value <= bound) ? 'met' : 'not met';
  };
  return { goal, case: label, value, found, must: outcome(goal.must), aim: goal.aimWithout?.includes(label) ? '' : outcome(aim) };
}

function held({ worst, is }: Goal, found: Spread | undefined): number | undefined {
  if (worst !== true) return found?.median;
  return is === 'at least' ? found?.min : found?.max;
}

/** Postern's own figures, or their ratios to the peer that does best: that is where they are worst. */
function standing({ to, is }: Goal, figures: Series['figures']): Spread | undefined {
  const own = figures.get(POSTERN) ?? [];
  if (to === undefined) return spreadOf(own);
  const ratios = to.flatMap((peer) => ratioOf(own, figures.get(peer) ?? []) ?? []);
  return ratios.toSorted((a, b) => (is === 'at least' ? a.median - b.median : b.median - a.median))[0];
}

export function reachTable(verdicts: readonly Verdict[]): string {
  const sign = { 'at least': '≥', 'at most': '≤' } as const;
  const bound = ({ is }: Goal, limit: number | string, outcome: Outcome) =>
    outcome === '' ? '' : `${sign[is]} ${typeof limit === 'number' ? figure(limit) : limit}: ${outcome}`;
  return table(
    ['goal', 'case', 'measured', 'must', 'aim'],
    verdicts.map(({ goal, case: label, found, must, aim }) => [
      goal.text,
      label,
      spread(found),
      bound(goal, goal.must, must),
      bound(goal, goal.aim, aim),
    ]),
  );
}
