import { Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { leadingKeywords } from '../../../../src/syntax/statements.ts';
import { call } from '../../api/client.ts';

export type QueryOrder = 'totalTime' | 'meanTime' | 'calls' | 'rows' | 'errors' | 'bytes';

/** What Postern has counted. Times are in ms. */
interface QueryCounts {
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

const PLANNED = new Set(['SELECT', 'WITH', 'INSERT', 'UPDATE', 'DELETE', 'MERGE', 'VALUES', 'TABLE']);

/** Why the statement has no plan that can be shown; undefined: it has one. */
export function whyNoPlan({ sql }: QueryStatistic): string | undefined {
  if (sql.length >= QUERY_TEXT_MAX_CHARACTERS) return 'The text is cut, so it cannot be planned.';
  const [first = 'SELECT'] = leadingKeywords(sql, 1);
  return PLANNED.has(first) ? undefined : `${first} is not planned.`;
}

interface TransactionReply {
  readonly results: readonly { readonly rows: readonly (readonly string[])[] }[];
}

/**
 * The generic plan of the statement, which does not depend on the values of $1, $2, …. EXPLAIN (GENERIC_PLAN) cannot be used: the API
 * requires a value for each parameter, and PostgreSQL would plan with these values. Nothing is executed.
 */
export async function explain({ sql }: QueryStatistic, signal: AbortSignal): Promise<string> {
  const nulls = Array.from({ length: countParameters(sql) }, () => 'NULL');
  const statements = [
    'SET LOCAL plan_cache_mode = force_generic_plan',
    `PREPARE console_plan AS ${sql}`,
    `EXPLAIN EXECUTE console_plan${nulls.length === 0 ? '' : `(${nulls.join(', ')})`}`,
    'DEALLOCATE console_plan',
  ];
  const body = { statements: statements.map((one) => ({ sql: one })), readOnly: true, rollback: true, rowMode: 'array' };
  const { results } = await call<TransactionReply>('POST', 'api/transaction', { body, signal, isSafe: true });
  return (results[2]?.rows ?? []).map(([line]) => line).join('\n');
}

/** The largest n of `$n`. */
function countParameters(sql: string): number {
  const lexer = new Lexer(sql);
  let count = 0;
  while (lexer.next() !== Token.End) {
    if (lexer.kind === Token.Parameter) count = Math.max(count, Number(sql.slice(lexer.start + 1, lexer.end)));
  }
  return count;
}

/** What a rule is about. */
interface RuleText {
  readonly title: string;
  /** Why it matters, in one sentence. */
  readonly why: string;
  /** Each message says the same as `why`. */
  readonly isAlike?: boolean;
  /** What to know before the cure is applied. */
  readonly caution?: string;
}

const REWRITES = 'The statement rewrites the table, and locks it meanwhile.';

const RULES: Readonly<Record<string, RuleText>> = {
  invalid_index: {
    title: 'Invalid indexes',
    why: 'Queries do not use such an index, and writes go on to maintain it. Its concurrent build has failed, or is still running.',
    isAlike: true,
  },
  integer_key_near_end: {
    title: 'Keys that run out of numbers',
    why: 'When the last number of the type is used up, every INSERT fails.',
    caution: REWRITES,
  },
  sequence_near_end: {
    title: 'Sequences that run out of numbers',
    why: 'When the last number is used up, whatever asks for the next one fails.',
  },
  definer_without_search_path: {
    title: 'Definer routines without a search path',
    why: 'Such a routine runs with the rights of its owner. Its caller decides with the search path, or with temporary objects, what its names mean.',
    caution: 'Names that it uses of other schemas than its own and public have to be qualified then, or added to the path.',
  },
  no_primary_key: {
    title: 'Tables without a primary key',
    why: 'Rows cannot be told apart, and logical replication cannot update them.',
    isAlike: true,
    caution: REWRITES,
  },
  foreign_key_without_index: {
    title: 'Foreign keys without an index',
    why: 'Deleting a row that is referred to has to look through the whole table that refers to it.',
  },
  duplicate_index: {
    title: 'Duplicate indexes',
    why: 'Two indexes that do the same cost twice the space, and twice the time with each write.',
  },
  large_sequential_scans: {
    title: 'Large sequential scans',
    why: 'A large table that is read from its beginning again and again often lacks an index.',
  },
  never_analyzed: {
    title: 'Tables that were never analyzed',
    why: 'Without statistics of its values the planner guesses, and may choose a slow plan.',
  },
  unused_index: { title: 'Unused indexes', why: 'An index that no query uses costs space, and time with each write.' },
  no_row_security_with_read_keys: {
    title: 'Tables that read keys see whole',
    why: 'There are read keys, and without row security they see all rows of these tables.',
    isAlike: true,
    caution: 'With row security, read keys see no row at all until a policy lets them.',
  },
  timestamp_without_time_zone: {
    title: 'Timestamps without a time zone',
    why: 'Which instant such a timestamp means depends on who wrote it.',
    isAlike: true,
    caution: `${REWRITES} It takes the values as UTC.`,
  },
  json_instead_of_jsonb: {
    title: 'json instead of jsonb',
    why: 'json is parsed each time it is read, and no index finds what is in it.',
    isAlike: true,
    caution: `${REWRITES} jsonb keeps no white space, and no order of keys.`,
  },
};

export function textOfRule(rule: string): RuleText {
  return RULES[rule] ?? { title: rule.replaceAll('_', ' '), why: '' };
}
