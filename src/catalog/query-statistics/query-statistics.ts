import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';

export const QUERY_ORDERS = ['totalTime', 'meanTime', 'calls', 'rows'] as const;
export type QueryOrder = (typeof QUERY_ORDERS)[number];

export const QUERIES_MAX = 100;
/** Longer ones are cut. */
export const QUERY_TEXT_MAX_CHARACTERS = 8_000;

/** Whose statements are wanted: those that these roles ran in this database. */
export interface StatementsOf {
  readonly database: string;
  readonly roles: readonly string[];
}

export interface QueryStatistic {
  readonly queryId: string;
  /** As the server has it, with `$1` in place of constants, except in statements that are not planned. */
  readonly sql: string;
  /** Whether the whole text, of which `sql` may be the beginning, mentions passwords. */
  readonly mentionsPasswords: boolean;
  readonly calls: number;
  readonly totalMs: number;
  readonly meanMs: number;
  readonly maxMs: number;
  readonly rows: number;
  readonly blocksHit: number;
  readonly blocksRead: number;
  readonly tempBlocksWritten: number;
}

export type QueryStatisticsReply =
  | { readonly isAvailable: true; readonly statsSince: Date | null; readonly queries: readonly QueryStatistic[] }
  | { readonly isAvailable: false; readonly reason: string; readonly cure: string };

interface Facts {
  readonly preloaded: boolean;
  readonly created: boolean;
  readonly allowed: boolean;
  readonly role: string;
}

/**
 * What pg_stat_statements has counted, of one organization's roles at a time. The platform role reads it in the control database; it runs
 * nothing in the organization's.
 */
export class QueryStatistics {
  readonly #database: ControlPool;
  /** Those that have not begun, by what they read. */
  readonly #waiting = new Map<string, Promise<QueryStatisticsReply>>();
  #last: Promise<unknown> = Promise.resolve();

  constructor(database: ControlPool) {
    this.#database = database;
  }

  /** Reads one after another, because each reads all texts of the server. Who asks for the same before it begins shares the answer. */
  read(of: StatementsOf, order: QueryOrder): Promise<QueryStatisticsReply> {
    const key = [of.database, ...of.roles, order].join(' ');
    const shared = this.#waiting.get(key);
    if (shared !== undefined) return shared;
    const answer = this.#last.then(() => {
      this.#waiting.delete(key);
      return this.#database.run((sql) => readStatistics(sql, of, order));
    });
    this.#waiting.set(key, answer);
    this.#last = answer.catch(() => {});
    return answer;
  }
}

async function readStatistics(sql: Sql, of: StatementsOf, order: QueryOrder): Promise<QueryStatisticsReply> {
  const [facts] = await sql<Facts[]>`
    select pg_catalog.current_setting('pg_stat_statements.max', true) is not null as preloaded,
      pg_catalog.to_regclass('public.pg_stat_statements') is not null as created,
      pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') as allowed, current_user::text as role`;
  const missing = facts && whatIsMissing(facts);
  if (missing !== undefined) return { isAvailable: false, ...missing };
  const [since] = await sql<{ since: Date | null }[]>`select stats_reset as since from public.pg_stat_statements_info`;
  return { isAvailable: true, statsSince: since?.since ?? null, queries: await largest(sql, of, order) };
}

function whatIsMissing({ preloaded, created, allowed, role }: Facts): { reason: string; cure: string } | undefined {
  if (!preloaded) {
    return {
      reason: 'The PostgreSQL server does not preload pg_stat_statements.',
      cure: "Whoever runs the server sets shared_preload_libraries = 'pg_stat_statements' and restarts it, then Postern.",
    };
  }
  if (!created) {
    return {
      reason: 'The extension pg_stat_statements is not in the control database.',
      cure: 'There, a superuser runs: CREATE EXTENSION pg_stat_statements SCHEMA public',
    };
  }
  if (!allowed) {
    return { reason: 'Postern may not read the statistics of all roles.', cure: `A superuser runs: GRANT pg_read_all_stats TO "${role}"` };
  }
  return undefined;
}

/**
 * Left out are statements that begin and end transactions, that only set something up, and those that name pg_catalog: Postern's own are
 * among them, and those of clients that describe tables.
 */
function largest(sql: Sql, { database, roles: [role = '', other = role] }: StatementsOf, order: QueryOrder): Promise<QueryStatistic[]> {
  return sql<QueryStatistic[]>`
    with own as materialized (
      select s.queryid, pg_catalog.left(s.query, ${QUERY_TEXT_MAX_CHARACTERS}::int) as text, s.query ~* 'passw' as secret, s.calls,
        s.total_exec_time, s.max_exec_time, s.rows, s.shared_blks_hit, s.shared_blks_read, s.temp_blks_written
      from public.pg_stat_statements s
      where s.toplevel and s.queryid is not null and s.dbid = (select oid from pg_catalog.pg_database where datname = ${database})
        and s.userid in (select oid from pg_catalog.pg_roles where rolname in (${role}, ${other}))
    )
    select queryid::text as "queryId", min(text) as sql, bool_or(secret) as "mentionsPasswords", sum(calls)::float8 as calls,
      sum(total_exec_time) as "totalMs", sum(total_exec_time) / sum(calls)::float8 as "meanMs", max(max_exec_time) as "maxMs",
      sum(rows)::float8 as rows, sum(shared_blks_hit)::float8 as "blocksHit", sum(shared_blks_read)::float8 as "blocksRead",
      sum(temp_blks_written)::float8 as "tempBlocksWritten"
    from own
    where text !~* '^\\s*(begin|start|commit|end|rollback|abort|savepoint|release|prepare|deallocate|set|reset|show|discard|listen|unlisten|notify)\\M'
      and text !~ '\\mpg_catalog\\M|\\mpostern[._]'
    group by queryid
    order by case ${order}::text
      when 'meanTime' then sum(total_exec_time) / sum(calls)::float8 when 'calls' then sum(calls)::float8 when 'rows' then sum(rows)::float8
      else sum(total_exec_time) end desc
    limit ${QUERIES_MAX}`;
}
