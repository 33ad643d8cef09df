import { call } from '../../api/client.ts';

export type QueryOrder = 'totalTime' | 'meanTime' | 'calls' | 'rows' | 'errors' | 'bytes';

/** What Postern has counted. Times are in ms. */
export interface QueryCounts {
  /** Failed runs included. */
  readonly calls: number;
  readonly errors: number;
  readonly totalMs: number;
  readonly meanMs: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly rows: number;
  readonly bytes: number;
  readonly firstSeenAt: string;
  readonly lastSeenAt: string;
}

/** Of statements that differ in constants only. */
export interface QueryStatistic extends QueryCounts {
  readonly queryId: string;
  readonly sql: string;
}

/** `GET /api/insights/queries` */
export interface QueryStatistics {
  readonly statsSince: string | null;
  readonly queries: readonly QueryStatistic[];
  /** What is not told apart; null: there is none. */
  readonly others: QueryCounts | null;
}

export interface Advice {
  readonly rule: string;
  readonly severity: 'warning' | 'info';
  readonly schema: string;
  readonly table: string | null;
  /** The index, foreign key, column or sequence; null: the table itself. */
  readonly object: string | null;
  readonly message: string;
  readonly cure: string | null;
}

/** `GET /api/insights/advice` */
export interface AdviceReply {
  readonly advice: readonly Advice[];
  readonly isComplete: boolean;
}

/** The most that the API returns. */
export const QUERIES_MAX = 100;
/** Longer texts are cut. */
export const QUERY_TEXT_MAX_CHARACTERS = 8_000;

export function readQueries(orderBy: QueryOrder, signal: AbortSignal): Promise<QueryStatistics> {
  return call('GET', `api/insights/queries?orderBy=${orderBy}&limit=${QUERIES_MAX}`, { signal });
}

export function readAdvice(signal: AbortSignal): Promise<AdviceReply> {
  return call('GET', 'api/insights/advice', { signal });
}
