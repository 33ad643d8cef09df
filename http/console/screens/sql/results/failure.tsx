import { ApiError } from '../../../api/api-error.ts';
import { Button } from '../../../parts/button.tsx';
import { ProblemNotice } from '../../../parts/notice.tsx';
import { runAgain } from '../run/actions.ts';
import type { Run } from '../run/run-request-and-result.ts';
import { currentTab, editors } from '../sql-screen-state.ts';

/** Where the same request may go better another time. */
const RETRY_STATUS: ReadonlySet<number> = new Set([0, 409, 429, 502, 503, 504]);

export function Failure({ run }: { readonly run: Run }) {
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
