/*
 * What EXPLAIN (FORMAT JSON) returns, as a tree with the time of each node.
 * @see https://www.postgresql.org/docs/current/using-explain.html
 */

type Raw = Readonly<Record<string, unknown>>;

export interface PlanNode {
  readonly id: string;
  readonly title: string;
  /** The table, index, function or CTE. */
  readonly target: string;
  /** `InitPlan 1`, `Inner`. */
  readonly role: string;
  readonly estimatedRows: number;
  /** In one loop, as the estimate; undefined if it did not run. */
  readonly actualRows: number | undefined;
  /** 0: it was never executed. */
  readonly loops: number | undefined;
  readonly cost: number;
  /** Milliseconds with its children; undefined if it did not run. */
  readonly totalMs: number | undefined;
  /** Its part of the plan's time without its children, from 0 to 1; of the plan's cost if nothing was executed. */
  readonly share: number;
  readonly selfMs: number | undefined;
  readonly facts: readonly (readonly [term: string, text: string])[];
  readonly warnings: readonly string[];
  /** There are many more or fewer rows than estimated. */
  readonly isMisestimated: boolean;
  readonly children: readonly PlanNode[];
}

export interface Plan {
  readonly root: PlanNode;
  readonly planningMs: number | undefined;
  readonly executionMs: number | undefined;
  readonly triggers: readonly { readonly name: string; readonly ms: number; readonly calls: number }[];
  /** Compiling expressions took so long. */
  readonly jitMs: number;
  readonly nodes: number;
}

/** @returns undefined for what is no plan */
export function readPlan(json: unknown): Plan | undefined {
  const document: unknown = Array.isArray(json) ? json[0] : json;
  if (!isRecord(document) || !isRecord(document.Plan)) return undefined;
  const measured = measure(document.Plan, 1, '0');
  const hasRun = measured.inclusiveMs !== undefined;
  const whole = hasRun ? (measured.inclusiveMs ?? 0) : measured.cost;
  const triggers = records(document.Triggers).map((trigger) => ({
    name: text(trigger, 'Trigger Name') || text(trigger, 'Constraint Name'),
    ms: number(trigger, 'Time') ?? 0,
    calls: number(trigger, 'Calls') ?? 0,
  }));
  const timing = isRecord(document.JIT) && isRecord(document.JIT.Timing) ? document.JIT.Timing : {};
  return {
    root: nodeOf(measured, whole),
    planningMs: number(document, 'Planning Time'),
    executionMs: number(document, 'Execution Time'),
    triggers,
    jitMs: number(timing, 'Total') ?? 0,
    nodes: countOf(measured),
  };
}

interface Measured {
  readonly raw: Raw;
  readonly id: string;
  readonly cost: number;
  readonly selfCost: number;
  readonly inclusiveMs: number | undefined;
  readonly selfMs: number | undefined;
  readonly children: readonly Measured[];
}

/** @param processes by which the node is run; its times are the mean of them */
function measure(raw: Raw, processes: number, id: string): Measured {
  const launched = number(raw, 'Workers Launched');
  const below = launched === undefined ? processes : launched + 1;
  const children = records(raw.Plans).map((child, index) => measure(child, below, `${id}.${index}`));
  const ms = number(raw, 'Actual Total Time');
  const loops = number(raw, 'Actual Loops');
  const inclusiveMs = ms === undefined || loops === undefined ? undefined : (ms * loops) / Math.max(1, Math.min(processes, loops));
  const cost = number(raw, 'Total Cost') ?? 0;
  // The time of an InitPlan is that of whichever node asks for it first.
  const inside = children.filter((child) => text(child.raw, 'Parent Relationship') !== 'InitPlan');
  const sum = (of: (child: Measured) => number | undefined) => inside.reduce((all, child) => all + (of(child) ?? 0), 0);
  return {
    raw,
    id,
    cost,
    selfCost: Math.max(0, cost - sum((child) => child.cost)),
    inclusiveMs,
    selfMs: inclusiveMs === undefined ? undefined : Math.max(0, inclusiveMs - sum((child) => child.inclusiveMs)),
    children,
  };
}

function countOf({ children }: Measured): number {
  return children.reduce((sum, child) => sum + countOf(child), 1);
}

function nodeOf(measured: Measured, whole: number): PlanNode {
  const { raw, id, cost, selfCost, inclusiveMs, selfMs, children } = measured;
  return {
    id,
    title: titleOf(raw),
    target: targetOf(raw),
    role: roleOf(raw),
    estimatedRows: number(raw, 'Plan Rows') ?? 0,
    actualRows: number(raw, 'Actual Rows'),
    loops: number(raw, 'Actual Loops'),
    cost,
    totalMs: inclusiveMs,
    selfMs,
    share: whole <= 0 ? 0 : Math.min(1, (selfMs ?? selfCost) / whole),
    facts: factsOf(raw),
    warnings: [...estimateWarnings(raw), ...warningsOf(raw)],
    isMisestimated: estimateWarnings(raw).length > 0,
    children: children.map((child) => nodeOf(child, whole)),
  };
}

function titleOf(raw: Raw): string {
  const type = text(raw, 'Node Type');
  const strategy = text(raw, 'Strategy');
  const join = text(raw, 'Join Type');
  const operation = text(raw, 'Operation');
  if (operation !== '' && type === 'ModifyTable') return operation;
  if (type === 'Aggregate' && strategy === 'Hashed') return 'Hash Aggregate';
  if (type === 'Aggregate' && strategy === 'Sorted') return 'Group Aggregate';
  const partial = text(raw, 'Partial Mode') === 'Partial' ? 'Partial ' : '';
  const parallel = raw['Parallel Aware'] === true ? 'Parallel ' : '';
  const kind = join !== '' && join !== 'Inner' ? ` ${join}` : '';
  const direction = text(raw, 'Scan Direction') === 'Backward' ? ' Backward' : '';
  return `${partial}${parallel}${type}${kind}${direction}`;
}

function targetOf(raw: Raw): string {
  const name =
    ['Relation Name', 'Function Name', 'CTE Name', 'Tuplestore Name'].map((key) => text(raw, key)).find((found) => found !== '') ?? '';
  const schema = text(raw, 'Schema');
  const alias = text(raw, 'Alias');
  const index = text(raw, 'Index Name');
  const qualified = schema !== '' && schema !== 'public' && name !== '' ? `${schema}.${name}` : name;
  return [qualified, alias !== '' && alias !== name ? `as ${alias}` : '', index === '' ? '' : `using ${index}`].filter(Boolean).join(' ');
}

function roleOf(raw: Raw): string {
  const subplan = text(raw, 'Subplan Name');
  return subplan === '' ? '' : subplan;
}

const FACTS: readonly (readonly [key: string, term: string])[] = [
  ['Index Cond', 'Index condition'],
  ['Recheck Cond', 'Recheck'],
  ['Hash Cond', 'Hash condition'],
  ['Merge Cond', 'Merge condition'],
  ['Join Filter', 'Join filter'],
  ['Filter', 'Filter'],
  ['Rows Removed by Filter', 'Removed by the filter'],
  ['Rows Removed by Join Filter', 'Removed by the join filter'],
  ['Rows Removed by Index Recheck', 'Removed by the recheck'],
  ['Heap Fetches', 'Heap fetches'],
  ['Sort Key', 'Sort key'],
  ['Sort Method', 'Sort method'],
  ['Presorted Key', 'Presorted key'],
  ['Group Key', 'Group key'],
  ['Hash Batches', 'Hash batches'],
  ['Peak Memory Usage', 'Memory, kB'],
  ['Workers Planned', 'Workers planned'],
  ['Workers Launched', 'Workers launched'],
  ['One-Time Filter', 'One-time filter'],
  ['Conflict Resolution', 'On conflict'],
];

function factsOf(raw: Raw): PlanNode['facts'] {
  const facts = FACTS.flatMap(([key, term]) => {
    const value = raw[key];
    if (value === undefined || value === null || value === 0) return [];
    return [[term, Array.isArray(value) ? value.map(String).join(', ') : String(value)] as const];
  });
  const blocks = ['Hit', 'Read', 'Dirtied', 'Written'].flatMap((kind) => {
    const count = number(raw, `Shared ${kind} Blocks`) ?? 0;
    return count === 0 ? [] : [`${count} ${kind.toLowerCase()}`];
  });
  const temp = (number(raw, 'Temp Read Blocks') ?? 0) + (number(raw, 'Temp Written Blocks') ?? 0);
  if (temp > 0) blocks.push(`${temp} temporary`);
  return blocks.length === 0 ? facts : [...facts, ['Buffers', blocks.join(', ')]];
}

/** From here on the planner may have chosen another plan for that. */
const WRONG_FACTOR = 10;
const MANY_ROWS = 100;
/** Too few rows matter less: so many have to be expected. */
const VERY_MANY_ROWS = 10_000;
const WASTED_ROWS = 1_000;
const KILOBYTE = 1_024;

function estimateWarnings(raw: Raw): readonly string[] {
  const estimated = number(raw, 'Plan Rows') ?? 0;
  const actual = number(raw, 'Actual Rows');
  const loops = number(raw, 'Actual Loops') ?? 0;
  if (actual === undefined || loops === 0) return [];
  const factor = Math.max(actual, 1) / Math.max(estimated, 1);
  if (factor >= WRONG_FACTOR && actual * loops >= MANY_ROWS) return [`${rounded(factor)} times as many rows as estimated`];
  if (factor <= 1 / WRONG_FACTOR && estimated * loops >= VERY_MANY_ROWS) return [`${rounded(1 / factor)} times fewer rows than estimated`];
  return [];
}

function warningsOf(raw: Raw): readonly string[] {
  const loops = number(raw, 'Actual Loops') ?? 0;
  const warnings: string[] = [];
  const removed = (number(raw, 'Rows Removed by Filter') ?? 0) * loops;
  const kept = (number(raw, 'Actual Rows') ?? 0) * loops;
  if (text(raw, 'Node Type') === 'Seq Scan' && removed >= WASTED_ROWS && removed >= WRONG_FACTOR * kept)
    warnings.push(`reads ${rounded(removed + kept)} rows for ${rounded(kept)}: an index may help`);
  if (text(raw, 'Sort Space Type') === 'Disk')
    warnings.push(`sorts on disk: ${rounded((number(raw, 'Sort Space Used') ?? 0) / KILOBYTE)} MB, more than work_mem`);
  if ((number(raw, 'Hash Batches') ?? 1) > 1) warnings.push('the hash table does not fit in work_mem, and goes to disk in part');
  if ((number(raw, 'Lossy Heap Blocks') ?? 0) > 0) warnings.push('the bitmap does not fit in work_mem, so pages are read whole');
  const missing = (number(raw, 'Workers Planned') ?? 0) - (number(raw, 'Workers Launched') ?? number(raw, 'Workers Planned') ?? 0);
  if (missing > 0) warnings.push(`${missing} parallel ${missing === 1 ? 'worker was' : 'workers were'} not free`);
  return warnings;
}

function rounded(value: number): string {
  return (value < 10 ? Math.round(value * 10) / 10 : Math.round(value)).toLocaleString('en-US');
}

function isRecord(value: unknown): value is Raw {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function records(value: unknown): readonly Raw[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}

function text(raw: Raw, key: string): string {
  const value = raw[key];
  return typeof value === 'string' ? value : '';
}

function number(raw: Raw, key: string): number | undefined {
  const value = raw[key];
  return typeof value === 'number' ? value : undefined;
}
