import { signal } from '@preact/signals';
import { call } from '../../api/client.ts';
import { keepText, keptText } from '../../session/session.ts';
import { ANALYZE_PREFIX, EXPLAIN_PREFIX, type Run } from './run-request.ts';

/** A statement that was run, or several that were run together. */
export interface HistoryEntry {
  readonly id: string;
  /** What was asked of it besides to run. */
  readonly kind: '' | 'explain' | 'analyze';
  readonly sql: string;
  /** ISO 8601 */
  readonly at: string;
  readonly userAgent: string | null;
  readonly isError: boolean;
  readonly durationMs: number | null;
  readonly rowCount: number | null;
}

export interface HistoryPage {
  /** The newest first. */
  readonly entries: readonly HistoryEntry[];
  /** Where older ones begin. */
  readonly next: string | undefined;
}

/** What runs SQL that somebody has written. */
const ACTIONS: ReadonlySet<string> = new Set(['query', 'transaction', 'neon.sql', 'statement']);
const PAGE_ENTRIES = 300;
/** Longer texts are cut at that in the log. */
const SQL_CUT_AT_CHARACTERS = 2_000;

interface AuditPage {
  readonly data: readonly {
    readonly id: string;
    readonly occurredAt: string;
    readonly action: string;
    readonly userAgent: string | null;
    readonly statement?: { readonly sql: string };
    readonly outcome: { readonly status: 'ok' | 'error'; readonly rowCount: number | null; readonly durationMs: number | null };
  }[];
  readonly hasMore: boolean;
  readonly nextCursor: string | null;
}

/** Statements from the audit log. */
export async function historyPage(after: string | undefined): Promise<HistoryPage> {
  const body = { limit: PAGE_ENTRIES, ...(after === undefined ? {} : { after }) };
  const { data, hasMore, nextCursor } = await call<AuditPage>('POST', 'api/audit', { body, isSafe: true });
  const entries = data.flatMap(({ id, occurredAt, action, userAgent, statement, outcome }) =>
    statement === undefined || !ACTIONS.has(action)
      ? []
      : [
          {
            id,
            ...withoutPrefix(statement.sql),
            at: occurredAt,
            userAgent,
            isError: outcome.status === 'error',
            durationMs: outcome.durationMs,
            rowCount: outcome.rowCount,
          },
        ],
  );
  return { entries, next: hasMore && nextCursor !== null ? nextCursor : undefined };
}

export function pageHistoryEntries(entries: readonly PageHistoryEntry[]): readonly HistoryEntry[] {
  return entries.map(({ sql, at, phase, durationMs, rowCount }, index) => ({
    id: `${at} ${index}`,
    kind: '' as const,
    sql,
    at,
    userAgent: navigator.userAgent,
    isError: phase === 'failed',
    durationMs,
    rowCount,
  }));
}

/** Explain and Analyze put something before the statement. */
function withoutPrefix(sql: string): Pick<HistoryEntry, 'sql' | 'kind'> {
  if (sql.startsWith(EXPLAIN_PREFIX)) return { sql: sql.slice(EXPLAIN_PREFIX.length), kind: 'explain' };
  if (sql.startsWith(ANALYZE_PREFIX)) return { sql: sql.slice(ANALYZE_PREFIX.length), kind: 'analyze' };
  return { sql, kind: '' };
}

export function isWhole({ sql }: HistoryEntry): boolean {
  return sql.length + ANALYZE_PREFIX.length < SQL_CUT_AT_CHARACTERS;
}

/** What was run in this page. Keys that may not read the audit log have only this. */
interface PageHistoryEntry {
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
