import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, isAbort } from '../../api/api-error.ts';
import { formatBytes, formatCount, formatDuration, formatShare, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { ProblemNotice } from '../../parts/notice.tsx';
import { openInEditor } from '../sql/sql-screen-state.ts';
import { explain, whyNoPlan } from './generic-plan.ts';
import { QUERY_TEXT_MAX_CHARACTERS, type QueryStatistic } from './insights-calls.ts';

export interface QueryDialogProps {
  readonly of: QueryStatistic;
  /** Of the time of all statements that are listed: 0 to 1. */
  readonly share: number;
  readonly onClose: () => void;
}

type Plan = { readonly isBusy: true } | { readonly text: string } | { readonly error: unknown };

/** The whole text of a statement, all that was counted of it, and its plan. */
export function QueryDialog({ of: query, share, onClose }: QueryDialogProps) {
  const [plan, setPlan] = useState<Plan>();
  const abandoned = useRef(new AbortController());
  useEffect(() => () => abandoned.current.abort(), []);
  const isCut = query.sql.length >= QUERY_TEXT_MAX_CHARACTERS;
  const refusal = whyNoPlan(query);
  const show = async () => {
    setPlan({ isBusy: true });
    try {
      setPlan({ text: await explain(query, abandoned.current.signal) });
    } catch (error) {
      if (!isAbort(error)) setPlan({ error });
    }
  };
  return (
    <Dialog title="Statement" class="wide" onClose={onClose}>
      <CodeBlock
        text={query.sql}
        label={isCut ? 'Its beginning, with $1, $2, … in place of constants' : 'With $1, $2, … in place of constants'}
      />
      {plan !== undefined && 'text' in plan && (
        <CodeBlock text={plan.text} label="Plan for whatever the values are. Costs and rows are estimated; nothing was run." />
      )}
      {plan !== undefined && 'error' in plan && <PlanError error={plan.error} />}
      <dl class="facts">
        {factsOf(query, share).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        <div>
          <dt>Query id</dt>
          <dd>
            <code>{query.queryId}</code>
            <CopyButton text={query.queryId} label="Copy the query id" isSmall />
          </dd>
        </div>
      </dl>
      <footer>
        {refusal !== undefined && <p class="muted">{refusal}</p>}
        <Button icon="sql" onClick={() => openInEditor(query.sql)}>
          Open in SQL
        </Button>
        <Button icon="steps" isDisabled={refusal !== undefined} isBusy={plan !== undefined && 'isBusy' in plan} onClick={() => void show()}>
          Plan
        </Button>
      </footer>
    </Dialog>
  );
}

function PlanError({ error }: { readonly error: unknown }) {
  const isOfText = error instanceof ApiError && error.problem.statementIndex === 1;
  return (
    <>
      <ProblemNotice error={error} />
      {isOfText && (
        <p class="muted">
          $1 stands in place of a constant. Where only a constant may stand, as in <code>interval '1 day'</code>, or where its type is not
          clear without it, such a text cannot be planned: put values in, and explain it in the SQL editor.
        </p>
      )}
    </>
  );
}

function factsOf(query: QueryStatistic, share: number): readonly (readonly [string, string])[] {
  const { calls, errors, totalMs, meanMs, p99Ms, maxMs, rows, bytes, firstSeenAt, lastSeenAt } = query;
  return [
    ['Calls', errors === 0 ? formatCount(calls) : `${formatCount(calls)}, ${formatCount(errors)} of them failed`],
    ['Total', `${formatDuration(totalMs)}, ${formatShare(share)} of what is listed`],
    ['Mean', formatDuration(meanMs)],
    ['99 % within', formatDuration(p99Ms)],
    ['Longest', formatDuration(maxMs)],
    ['Rows', `${formatCount(rows)}, ${formatCount(Math.round((rows / Math.max(1, calls)) * 10) / 10)} a call`],
    ['Replies', `${formatBytes(bytes)}, ${formatBytes(Math.round(bytes / Math.max(1, calls)))} a call`],
    ['Seen', `first ${formatTime(firstSeenAt)}, last ${formatTime(lastSeenAt)}`],
  ];
}
