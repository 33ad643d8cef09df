import type { Config } from '../config.ts';
import type { Sql } from './control-pool.ts';

/** What an operator has set for one organization; null: the default of the service. */
export interface OrganizationLimits {
  /** How large its data may be; 0: any size, whatever the default. */
  readonly diskBytes: number | null;
  /** How many connections it may have to the wire door; over HTTP also, how many requests under way. */
  readonly sessions: number | null;
  /** How many requests over HTTP it may send in a second, on average; null: as many as it likes. */
  readonly requestsPerSecond: number | null;
  /** How long a statement may take, at both doors; 0: at the wire door as long as it likes. */
  readonly statementMs: number | null;
}

/** All defaults. */
export const NO_LIMITS: OrganizationLimits = Object.freeze({ diskBytes: null, sessions: null, requestsPerSecond: null, statementMs: null });

/** Whose limits they are. */
interface Limited {
  readonly limits: OrganizationLimits;
}

/** How many bytes the organization's data may have, a clone's for itself; undefined: any number. */
export function diskLimitOf({ limits }: Limited, { POSTERN_DISK_PER_TENANT_BYTES: usual }: Config): number | undefined {
  return (limits.diskBytes ?? usual) || undefined;
}

/**
 * How the size of an organization's data compares to its limit. `near`: it has 80 % of it; `over`: all of it, so that it may not write;
 * `read_only`: the same where no superuser is known, so that its sessions have the role of its readers.
 */
export type DiskState = 'within' | 'near' | 'over' | 'read_only';

export function isOver(state: DiskState): boolean {
  return state === 'over' || state === 'read_only';
}

/** What applies to an organization: its own limits, or the defaults. */
export interface LimitsInForce {
  /** Null: any size. */
  readonly diskBytes: number | null;
  /** Connections to the wire door. */
  readonly sessions: number;
  /** Requests over HTTP that are under way. */
  readonly requests: number;
  /** Null: any number. */
  readonly requestsPerSecond: number | null;
  /** At the wire door; 0: no limit. */
  readonly statementMs: number;
  /** The most that a request over HTTP may ask for. */
  readonly httpStatementMs: number;
}

/** The longest timeout that a request over HTTP may ask for. */
export function httpStatementMsOf({ limits: { statementMs } }: Limited, { POSTERN_STATEMENT_TIMEOUT_MAX_MS: maxMs }: Config): number {
  return statementMs === null || statementMs === 0 ? maxMs : Math.min(statementMs, maxMs);
}

/** How many requests over HTTP may be under way. @param usual as many as others may have */
export function requestsOf({ limits: { sessions } }: Limited, usual: number): number {
  return sessions === null ? usual : Math.min(sessions, usual);
}

export function limitsInForce(organization: Limited, config: Config): LimitsInForce {
  const { sessions, requestsPerSecond, statementMs } = organization.limits;
  return {
    diskBytes: diskLimitOf(organization, config) ?? null,
    sessions: sessions ?? config.POSTERN_CLIENTS_PER_TENANT,
    requests: requestsOf(organization, config.POSTERN_HTTP_REQUESTS_PER_TENANT),
    requestsPerSecond,
    statementMs: statementMs ?? config.POSTERN_WIRE_STATEMENT_TIMEOUT_MS,
    httpStatementMs: httpStatementMsOf(organization, config),
  };
}

/** Stores the limits of an organization that the caller has locked. */
export async function storeLimits(sql: Sql, { id, limits }: Limited & { readonly id: string }): Promise<void> {
  await sql`
    update postern.organizations set limits = ${JSON.stringify(limits)}::text::jsonb, revision = revision + 1 where id = ${id}`;
}
