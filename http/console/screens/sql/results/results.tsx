import { useEffect, useState } from 'preact/hooks';
import { refreshSchema, schema } from '../../../api/load-schema.ts';
import { Button } from '../../../parts/button.tsx';
import { Empty } from '../../../parts/empty.tsx';
import { Tabs } from '../../../parts/layout/tabs.tsx';
import { lazy } from '../../../shell/lazy.tsx';
import { NoTables } from '../../tables/list/no-tables.tsx';
import { commandTag, type Result, type Run } from '../run/run-request-and-result.ts';
import { openText, type QueryTab } from '../sql-screen-state.ts';
import { Failure } from './failure.tsx';
import { ResultView } from './result-view.tsx';
import { Running } from './running.tsx';

const PlanView = lazy(async () => (await import('../plan/plan-view.tsx')).PlanView);

/** What came of the last run of a tab. */
export function Results({ tab }: { readonly tab: QueryTab }) {
  const run = tab.run.value;
  return run === undefined ? <Nothing /> : <Outcome key={run.startedAt} run={run} />;
}

/** A schema that is not older is not loaded again. */
const SCHEMA_MAX_AGE_MS = 10_000;
const EXAMPLE = `create table orders (
  id bigint generated always as identity primary key,
  customer text not null,
  total numeric(10,2) not null,
  placed_at timestamptz not null default now()
);
insert into orders (customer, total) values ('ada', 12.50), ('grace', 99.00);
select * from orders;
`;

function Nothing() {
  useEffect(() => void refreshSchema(SCHEMA_MAX_AGE_MS), []);
  if (schema.value?.tables.length === 0)
    return (
      <NoTables>
        <Button icon="sql" onClick={() => openText({ text: EXAMPLE })}>
          Example
        </Button>
      </NoTables>
    );
  return (
    <Empty icon="sql" title="Nothing has run yet">
      <p>
        <kbd>Ctrl Enter</kbd> runs what is selected, else the statement at the cursor. <kbd>Ctrl Shift Enter</kbd> runs all in one
        transaction.
      </p>
    </Empty>
  );
}

function Outcome({ run }: { readonly run: Run }) {
  const { phase, results, request } = run;
  return (
    <>
      {phase === 'running' && <Running run={run} />}
      {phase === 'canceled' && <Canceled run={run} />}
      {phase === 'failed' && <Failure run={run} />}
      {phase === 'done' && request.kind !== 'run' && <PlanView run={run} />}
      {results.length > 1 ? <Several run={run} /> : results.map((result) => <ResultView key={0} run={run} result={result} />)}
    </>
  );
}

function Canceled({ run: { startedAt, endedAt = startedAt, results } }: { readonly run: Run }) {
  const received = results[0]?.received ?? 0;
  return (
    <p class="sql-status muted" role="status">
      Canceled after {((endedAt - startedAt) / 1_000).toFixed(1)} s.{received > 0 && ' The rows that had come are shown.'}
    </p>
  );
}

/** A tab for each statement of a transaction. */
function Several({ run }: { readonly run: Run }) {
  const { results } = run;
  const [current, setCurrent] = useState(() =>
    String(
      Math.max(
        0,
        results.findLastIndex(({ rows }) => rows !== undefined),
      ),
    ),
  );
  const shown = results[Number(current)];
  return (
    <Tabs
      label="Results"
      class="sql-result-tabs"
      tabs={results.map((result, index) => ({ id: String(index), title: <TabTitle result={result} index={index} /> }))}
      current={current}
      onChange={setCurrent}
    >
      {shown !== undefined && <ResultView key={current} run={run} result={shown} />}
    </Tabs>
  );
}

function TabTitle({ result: { call, completion }, index }: { readonly result: Result; readonly index: number }) {
  return (
    <span title={call.statement.text.slice(0, 500)}>
      <span class="muted number">{index + 1}</span> {completion === undefined ? '…' : commandTag(completion)}
      {completion !== undefined && completion.warnings.length > 0 && <span class="warning"> !</span>}
    </span>
  );
}
