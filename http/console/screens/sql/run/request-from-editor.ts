import { currentTab, editors, type QueryTab, settings } from '../sql-screen-state.ts';
import { parametersFor } from './parameters.ts';
import type { Call, Kind, RunRequest } from './run-request-and-result.ts';
import { type Statement, statementAt, statementsBetween } from './statements.ts';

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
export function requestFor(kind: Kind, statements: readonly Statement[]): RunRequest {
  const tab = currentTab.peek();
  return {
    kind,
    text: tab.text.peek(),
    calls: callsOf(tab, statements),
    isReadOnly: settings.peek().isReadOnly,
    timeoutMs: timeoutMs(),
  };
}
