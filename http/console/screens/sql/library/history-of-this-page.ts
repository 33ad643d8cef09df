import { signal } from '@preact/signals';
import { keepText, keptText } from '../../../session/session-storage.ts';
import type { Run } from '../run/run-request-and-result.ts';

/** What was run in this page. Keys that may not read the audit log have only this. */
export interface PageHistoryEntry {
  readonly sql: string;
  /** ISO 8601 */
  readonly at: string;
  readonly phase: Run['phase'];
  readonly durationMs: number;
  readonly rowCount: number | null;
}

const NAME = 'sql-history';
const ENTRIES_MAX = 200;
/** Longer texts are kept in their tab only. */
const SQL_MAX_CHARACTERS = 20_000;

/** The newest first. */
export const pageHistory = signal<readonly PageHistoryEntry[]>(kept());

export function remember({ request, phase, startedAt, endedAt = startedAt, results }: Run): void {
  const sql = request.calls.map(({ statement }) => statement.text).join(';\n');
  if (sql.length > SQL_MAX_CHARACTERS) return;
  const entry: PageHistoryEntry = {
    sql,
    at: new Date().toISOString(),
    phase,
    durationMs: endedAt - startedAt,
    rowCount: results.length === 1 ? (results[0]?.completion?.rowCount ?? null) : null,
  };
  pageHistory.value = [entry, ...pageHistory.peek().filter((one) => one.sql !== sql)].slice(0, ENTRIES_MAX);
  keepText(NAME, JSON.stringify(pageHistory.peek()));
}

function kept(): readonly PageHistoryEntry[] {
  try {
    return JSON.parse(keptText(NAME) ?? '[]');
  } catch {
    return [];
  }
}
