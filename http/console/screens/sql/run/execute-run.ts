import type { Signal } from '@preact/signals';
import { ApiError, isAbort } from '../../../api/api-error.ts';
import { analyze, explain } from './calls/explain-and-analyze.ts';
import { stream } from './calls/stream-query.ts';
import { runTransaction } from './calls/transaction.ts';
import { placeOf } from './error-place.ts';
import { ANALYZE_PREFIX, EXPLAIN_PREFIX } from './explain-prefix.ts';
import type { Result, Run, RunRequest } from './run-request-and-result.ts';

const PREFIXES = { run: '', explain: EXPLAIN_PREFIX, analyze: ANALYZE_PREFIX } as const;

export interface RunOptions {
  /** Where the run is shown; another one there is given up. */
  readonly shown: Signal<Run | undefined>;
  /** The key may only read. */
  readonly isReader: boolean;
  readonly onEnd: (run: Run) => void;
}

/** Runs what is requested, and shows what comes of it. Errors are part of the run. */
export async function executeRun(request: RunRequest, { shown, isReader, onEnd }: RunOptions): Promise<void> {
  shown.peek()?.cancel();
  const canceled = new AbortController();
  let run: Run = {
    request,
    phase: 'running',
    startedAt: performance.now(),
    endedAt: undefined,
    results: [],
    plan: undefined,
    error: undefined,
    failedIndex: undefined,
    place: undefined,
    cancel: () => canceled.abort(),
  };
  const show = (change: Partial<Run>) => {
    run = { ...run, ...change };
    // What was started later has taken the place.
    if (shown.peek()?.cancel === run.cancel) shown.value = run;
  };
  shown.value = run;
  let end: Partial<Run>;
  try {
    end = { ...(await outcomeOf(request, canceled.signal, isReader, (result) => show({ results: [result] }))), phase: 'done' };
  } catch (error) {
    end = isAbort(error) ? { phase: 'canceled' } : { phase: 'failed', ...failureOf(error, request) };
  }
  show({ ...end, endedAt: performance.now() });
  onEnd(run);
}

async function outcomeOf(
  { kind, calls, ...settings }: RunRequest,
  signal: AbortSignal,
  isReader: boolean,
  onResult: (result: Result) => void,
): Promise<Partial<Run>> {
  const [first] = calls;
  if (first === undefined) return {};
  if (kind === 'explain') return { plan: await explain(first, settings, signal) };
  if (kind === 'analyze') return { plan: await analyze(first, settings, signal) };
  if (calls.length > 1) return { results: await runTransaction(calls, settings, signal) };
  await stream(first, settings, { signal, mayStop: isReader, onResult });
  return {};
}

function failureOf(error: unknown, { kind, text, calls }: RunRequest): Partial<Run> {
  const failedIndex = (error instanceof ApiError ? error.problem.statementIndex : undefined) ?? (calls.length === 1 ? 0 : undefined);
  const failed = failedIndex === undefined ? undefined : calls[failedIndex];
  return { error, failedIndex, place: failed && placeOf(error, text, failed.statement, PREFIXES[kind]) };
}
