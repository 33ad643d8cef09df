import { findDestruction } from '../../../../../src/syntax/destructive-statements.ts';
import { me } from '../../../session/me.ts';
import { say, sayError } from '../../../shell/toasts.tsx';
import { remember } from '../library/history-of-this-page.ts';
import { currentTab } from '../sql-screen-state.ts';
import { withoutExplain } from './explain-prefix.ts';
import { type PendingConfirmation, pendingConfirmation } from './pending-confirmation.ts';
import { here, requestFor, timeoutMs } from './request-from-editor.ts';
import type { RunRequest } from './run-request-and-result.ts';
import { statementsIn } from './statements.ts';

/** Runs what is selected, else the statement at the cursor. */
export function runHere(): void {
  ask(requestFor('run', here()));
}

/** Runs all statements in one transaction. */
export function runAll(): void {
  const tab = currentTab.peek();
  ask(requestFor('run', statementsIn(tab.text.peek())));
}

/** Shows the plan of the statement at the cursor. @param kind `analyze` runs it, and rolls it back */
export function explainHere(kind: 'explain' | 'analyze'): void {
  const [statement, another] = here();
  if (statement === undefined) return;
  if (another !== undefined) say('A plan is made of one statement: the first of those selected.');
  void begin(requestFor(kind, [withoutExplain(statement).statement]));
}

/** The same again, with the time limit that is chosen now. */
export function runAgain(request: RunRequest): void {
  ask({ ...request, timeoutMs: timeoutMs() });
}

/** What destroys data is shown before it runs. */
function ask(request: RunRequest): void {
  const destructions = request.isReadOnly ? [] : destructionsIn(request);
  if (destructions.length === 0) {
    void begin(request);
    return;
  }
  pendingConfirmation.value = { destructions, confirm: () => void begin(request) };
}

function destructionsIn({ kind, calls }: RunRequest): PendingConfirmation['destructions'] {
  if (kind !== 'run') return [];
  return calls.flatMap(({ statement }) => {
    const explained = withoutExplain(statement);
    const found = explained.runs ? findDestruction(explained.statement.text) : [];
    return found.length === 0 ? [] : [{ statement, found }];
  });
}

async function begin(request: RunRequest): Promise<void> {
  if (request.calls.length === 0) return;
  const tab = currentTab.peek();
  try {
    const { executeRun } = await import('./execute-run.ts');
    await executeRun(request, { shown: tab.run, isReader: me.peek()?.key.scope === 'read', onEnd: remember });
  } catch (error) {
    // The code could not be loaded.
    sayError(error, () => void begin(request));
  }
}
