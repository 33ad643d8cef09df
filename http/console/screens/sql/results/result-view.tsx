import { formatCount, formatDuration } from '../../../format.ts';
import { Grid } from '../../../parts/grid/grid.tsx';
import { MenuButton } from '../../../parts/menus/menu-button.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { commandTag, KEPT_ROWS_MAX, type Result, type Run } from '../run/run-request-and-result.ts';
import { downloadAll, downloadShown } from './download.ts';
import { DownloadAllButton } from './download-all-button.tsx';
import { insertTableOf } from './insert-table.ts';

const SHOWN_MIN_MS = 0.01;

/** One statement's rows, or what it has done. */
export function ResultView({ run, result }: { readonly run: Run; readonly result: Result }) {
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
