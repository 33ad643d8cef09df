import { findDestruction } from '../../../../src/syntax/destructive-statements.ts';
import { me } from '../../session/session.ts';
import { say, sayError } from '../../shell/toasts.tsx';
import { remember } from './history.ts';
import {
  type Call,
  type Kind,
  type PendingConfirmation,
  parametersFor,
  pendingConfirmation,
  type RunRequest,
  type Statement,
  statementAt,
  statementsBetween,
  statementsIn,
  withoutExplain,
} from './run-request.ts';
import { currentTab, editors, type QueryTab, settings } from './sql-screen-state.ts';

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

/** What is selected, else the statement at the cursor. */
export function here(): readonly Statement[] {
  const tab = currentTab.peek();
  const text = tab.text.peek();
  const { from, to } = editors.get(tab.id)?.selection() ?? { from: text.length, to: text.length };
  if (from !== to) return statementsBetween(text, from, to);
  const statement = statementAt(text, from);
  return statement === undefined ? [] : [statement];
}

/** Statements with the parameters of the tab. */
export function callsOf(tab: QueryTab, statements: readonly Statement[]): readonly Call[] {
  const values = tab.params.peek();
  return statements.map((statement) => ({ statement, params: parametersFor(statement.text, values) }));
}

export function timeoutMs(): number | undefined {
  const { timeLimit } = settings.peek();
  return timeLimit === '' ? undefined : Number(timeLimit);
}

/** A request with the text, the parameters and the settings as they are now. */
function requestFor(kind: Kind, statements: readonly Statement[]): RunRequest {
  const tab = currentTab.peek();
  return {
    kind,
    text: tab.text.peek(),
    calls: callsOf(tab, statements),
    isReadOnly: settings.peek().isReadOnly,
    timeoutMs: timeoutMs(),
  };
}
