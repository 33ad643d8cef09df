import { signal } from '@preact/signals';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { call } from '../../../http/console/api/client.ts';
import { executeRun } from '../../../http/console/screens/sql/execute-run.ts';
import {
  ANALYZE_PREFIX,
  commandTag,
  KEPT_ROWS_MAX,
  type Kind,
  parametersFor,
  type Run,
  type RunRequest,
  statementsIn,
} from '../../../http/console/screens/sql/run-request.ts';
import { PLACEMENTS, startTestService, type TestService } from '../../support/service.ts';
import { callAs } from '../tables/opened.ts';

function requestOf(text: string, kind: Kind = 'run', params: readonly string[] = []): RunRequest {
  const calls = statementsIn(text).map((statement) => ({ statement, params: parametersFor(statement.text, params) }));
  return { kind, text, calls, isReadOnly: false, timeoutMs: undefined };
}

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    callAs(service, await service.signUp());
    await outcomeOf('create table t (i int primary key, note text)');
    await outcomeOf("insert into t select i, 'note' from generate_series(1, 10) i");
  });
  afterAll(() => service.close());

  const outcomeOf = async (text: string, kind?: Kind, params?: readonly string[]): Promise<Run> => {
    const shown = signal<Run | undefined>(undefined);
    await executeRun(requestOf(text, kind, params), { shown, isReader: false, onEnd: () => {} });
    if (shown.value === undefined) throw new Error('nothing was shown');
    return shown.value;
  };
  const count = async () => {
    const { rows } = await call<{ rows: { count: string }[] }>('POST', 'api/query', { body: { sql: 'select count(*) from t' } });
    return Number(rows[0]?.count);
  };

  it('the rows of one statement come with their values as they were sent', async () => {
    const { phase, results } = await outcomeOf("select 9007199254740993 as big, null as none, '' as empty, $1::text as typed", 'run', [
      'it',
    ]);
    const [result] = results;
    expect(phase).toBe('done');
    expect(result?.rows?.columns.map(({ name }) => name)).toEqual(['big', 'none', 'empty', 'typed']);
    expect([0, 1, 2, 3].map((column) => result?.rows?.valueAt(0, column))).toEqual(['"9007199254740993"', 'null', '""', '"it"']);
    expect(result?.completion && commandTag(result.completion)).toBe('SELECT 1');
  });

  it('a statement without rows has its command tag and its notices', async () => {
    const { results } = await outcomeOf("insert into t values (11, 'a'), (12, 'b')");
    expect(results[0]?.completion && commandTag(results[0].completion)).toBe('INSERT 0 2');
    const noticed = await outcomeOf("do $$ begin raise warning 'careful' using hint = 'a hint'; end $$");
    expect(noticed.results[0]?.completion?.warnings).toMatchObject([{ severity: 'WARNING', message: 'careful', hint: 'a hint' }]);
    await outcomeOf('delete from t where i > 10');
  });

  it('a statement that only reads ends when there are more rows than are kept', async () => {
    const { phase, results } = await outcomeOf('select i from generate_series(1, 300000) i');
    expect(phase).toBe('done');
    expect(results[0]).toMatchObject({ isCut: true, completion: undefined });
    expect(results[0]?.rows?.rowCount).toBe(KEPT_ROWS_MAX);
  });

  it('a statement that writes goes on to its end, however many rows it returns', async () => {
    await outcomeOf('create table many (i int)');
    const rows = KEPT_ROWS_MAX + 5_000;
    const { results } = await outcomeOf(`insert into many select generate_series(1, ${rows}) returning i`);
    expect(results[0]).toMatchObject({ isCut: true, received: rows, completion: { rowCount: rows } });
    const kept = await outcomeOf('select count(*) from many');
    expect(kept.results[0]?.rows?.valueAt(0, 0)).toBe(`"${rows}"`);
  });

  it('several statements run in one transaction, with a result for each', async () => {
    const { results } = await outcomeOf('select 1 as one, 2 as one; update t set note = note; select i from t order by i');
    expect(results.map(({ completion }) => completion && commandTag(completion))).toEqual(['SELECT 1', 'UPDATE 10', 'SELECT 10']);
    expect(results[0]?.rows?.valueAt(0, 1)).toBe('2');
    expect(results[1]?.rows).toBeUndefined();
    expect(results[2]?.rows?.valueAt(9, 0)).toBe('10');
  });

  it('an error in one of several names its statement and its place, and nothing has changed', async () => {
    const text = "delete from t;\nselect '😀';\nselect nope from t";
    const { phase, failedIndex, place } = await outcomeOf(text);
    expect({ phase, failedIndex }).toEqual({ phase: 'failed', failedIndex: 2 });
    expect(text.slice(place?.from, place?.to)).toBe('nope');
    expect(await count()).toBe(10);
  });

  it('ANALYZE of a DELETE leaves the rows', async () => {
    const { phase, plan } = await outcomeOf('delete from t', 'analyze');
    expect(phase).toBe('done');
    expect(plan).toMatchObject([{ Plan: { Operation: 'Delete', 'Actual Loops': 1 } }]);
    expect(await count()).toBe(10);
  });

  it('an error in what is explained is in the text, without what was put before it', async () => {
    const text = 'select nope from t';
    for (const kind of ['explain', 'analyze'] as const) {
      const { place } = await outcomeOf(text, kind);
      expect(text.slice(place?.from, place?.to)).toBe('nope');
    }
    expect(ANALYZE_PREFIX.length).toBeGreaterThan(text.length);
  });

  it('what is canceled says so, and what is started later takes its place', async () => {
    const shown = signal<Run | undefined>(undefined);
    const options = { shown, isReader: false, onEnd: () => {} };
    const sleeping = executeRun(requestOf('select pg_sleep(60)'), options);
    const sleepingRun = shown.value;
    const later = executeRun(requestOf('select 2'), options);
    await Promise.all([sleeping, later]);
    expect(sleepingRun?.phase).toBe('running');
    expect(shown.value).toMatchObject({ phase: 'done', request: { text: 'select 2' } });
    const alone = executeRun(requestOf('select pg_sleep(60)'), options);
    shown.value?.cancel();
    await alone;
    expect(shown.value?.phase).toBe('canceled');
  });
});
