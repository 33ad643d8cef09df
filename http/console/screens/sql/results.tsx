import { useEffect, useState } from 'preact/hooks';
import { ApiError } from '../../api/client.ts';
import { refreshSchema, schema } from '../../api/load-schema.ts';
import { formatCount, formatDuration } from '../../format.ts';
import { Grid } from '../../grid/grid.tsx';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Tabs } from '../../parts/layout.tsx';
import { MenuButton } from '../../parts/menu.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { lazy } from '../../shell/lazy.tsx';
import { NoTables } from '../tables/no-tables.tsx';
import { runAgain } from './actions.ts';
import { downloadAll, downloadShown } from './download.ts';
import { type Call, commandTag, insertTableOf, KEPT_ROWS_MAX, type Result, type Run, type RunRequest } from './run-request.ts';
import { currentDownload, currentTab, editors, openText, type QueryTab } from './sql-screen-state.ts';

const PlanView = lazy(async () => (await import('./plan-view.tsx')).PlanView);

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

const SHOWN_MIN_MS = 0.01;

/** One statement's rows, or what it has done. */
function ResultView({ run, result }: { readonly run: Run; readonly result: Result }) {
  const { rows, completion, isCut, call } = result;
  return (
    <div class="sql-result">
      <Summary run={run} result={result} />
      {isCut && run.phase !== 'running' && <MoreRows run={run} result={result} />}
      {completion !== undefined && <Warnings of={completion.warnings} />}
      {rows === undefined ? (
        completion !== undefined && <p class="sql-done">{sentenceOf(result)}</p>
      ) : (
        <Grid label="Result" source={rows} tableName={insertTableOf(call.statement.text)} />
      )}
    </div>
  );
}

function Summary({ run, result }: { readonly run: Run; readonly result: Result }) {
  const { rows, received, completion, isCut } = result;
  if (run.phase === 'running') return null;
  const shown = rows === undefined ? 0 : Math.min(received, KEPT_ROWS_MAX);
  return (
    <div class="sql-status">
      {completion !== undefined && completion.command !== 'SELECT' && <code class="sql-tag">{commandTag(completion)}</code>}
      {rows !== undefined && (
        <span class="number">
          {formatCount(shown)} {shown === 1 ? 'row' : 'rows'}
          {isCut && ' shown'}
        </span>
      )}
      {/* Of statements that were sent together, some have no time of their own. */}
      {completion !== undefined && completion.durationMs >= SHOWN_MIN_MS && (
        <span class="muted number">{formatDuration(completion.durationMs)}</span>
      )}
      {rows !== undefined && (
        <MenuButton
          label="Download"
          title="Download"
          icon="download"
          kind="quiet"
          entries={(['csv', 'json'] as const).map((form) => ({
            title: isCut ? `All rows as ${form.toUpperCase()}` : `As ${form.toUpperCase()}`,
            run: () => void (isCut ? downloadAll(run.request, result.call, form) : downloadShown(rows, form)),
          }))}
        />
      )}
    </div>
  );
}

function MoreRows({ run, result }: { readonly run: Run; readonly result: Result }) {
  const known = result.completion?.rowCount;
  return (
    <Notice tone="info" actions={<DownloadAllButton request={run.request} call={result.call} />}>
      <p class="notice-title">
        There are more rows: the first {formatCount(KEPT_ROWS_MAX)}
        {known ? ` of ${formatCount(known)}` : ''} are shown.
      </p>
      <p class="muted">To download all, the statement runs again, read only, into a file.</p>
    </Notice>
  );
}

function Warnings({ of: warnings }: { readonly of: NonNullable<Result['completion']>['warnings'] }) {
  if (warnings.length === 0) return null;
  return (
    <Notice tone={warnings.some(({ severity }) => severity === 'WARNING') ? 'warning' : 'info'}>
      <ul class="sql-warnings">
        {warnings.map(({ severity, message, detail, hint }, index) => (
          <li key={index}>
            <span class="tag">{severity.toLowerCase()}</span> {message}
            {detail !== undefined && <span class="muted"> {detail}</span>}
            {hint !== undefined && <span class="muted"> {hint}</span>}
          </li>
        ))}
      </ul>
    </Notice>
  );
}

function sentenceOf({ completion, received }: Result): string {
  if (completion === undefined) return '';
  const { rowCount, command } = completion;
  if (received > 0) return `${formatCount(received)} rows without columns.`;
  if (rowCount === null || command === 'SELECT') return 'Done.';
  return `${formatCount(rowCount)} ${rowCount === 1 ? 'row' : 'rows'} affected.`;
}

/** Where the same request may go better another time. */
const RETRY_STATUS: ReadonlySet<number> = new Set([0, 409, 429, 502, 503, 504]);

function Failure({ run }: { readonly run: Run }) {
  const { error, request, place } = run;
  const problem = error instanceof ApiError ? error.problem : undefined;
  const mayHelp = problem !== undefined && (problem.retryable === true || RETRY_STATUS.has(problem.status));
  const isSame = currentTab.value.text.value === request.text;
  const consequence = consequenceOf(run);
  return (
    <div class="sql-failure">
      <ProblemNotice error={error} {...(mayHelp ? { onRetry: () => runAgain(request) } : {})} />
      <div class="actions">
        {place !== undefined && isSame && (
          <Button
            kind="quiet"
            icon="arrow"
            onClick={() => {
              const editor = editors.get(currentTab.peek().id);
              editor?.select(place.from, place.to);
              editor?.focus();
            }}
          >
            Line {lineOf(request.text, place.from)}
          </Button>
        )}
        {consequence !== '' && <p class="muted">{consequence}</p>}
      </div>
    </div>
  );
}

function consequenceOf({ request: { calls }, failedIndex, error, results }: Run): string {
  if (calls.length > 1) {
    const which = failedIndex === undefined ? '' : `Statement ${failedIndex + 1} of ${calls.length} failed. `;
    const isRolledBack = error instanceof ApiError && error.problem.transactionStatus === 'rolled_back';
    return isRolledBack ? `${which}The transaction was rolled back: nothing has changed.` : which;
  }
  return (results[0]?.received ?? 0) > 0 ? 'The rows that had come before are shown.' : '';
}

function lineOf(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}

const TICK_MS = 100;

/** How long it has run, and how many rows have come. */
function Running({ run: { startedAt, results, cancel } }: { readonly run: Run }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const ticking = setInterval(() => setNow(performance.now()), TICK_MS);
    return () => clearInterval(ticking);
  }, []);
  const received = results[0]?.received ?? 0;
  return (
    <div class="sql-status">
      <span class="sql-running" />
      <span role="status">Running …</span>
      <span class="number">{Math.max(0, (now - startedAt) / 1_000).toFixed(1)} s</span>
      {received > 0 && <span class="number">{formatCount(received)} rows</span>}
      {received > KEPT_ROWS_MAX && <span class="muted">It may change data, so it runs to its end; further rows are not kept.</span>}
      <Button icon="stop" onClick={cancel}>
        Cancel
      </Button>
    </div>
  );
}

function DownloadAllButton({ request, call }: { readonly request: RunRequest; readonly call: Call }) {
  return (
    <div class="actions">
      <Button icon="download" isBusy={currentDownload.value !== undefined} onClick={() => void downloadAll(request, call, 'csv')}>
        Download all as CSV
      </Button>
      <Button onClick={() => void downloadAll(request, call, 'json')}>JSON</Button>
    </div>
  );
}
