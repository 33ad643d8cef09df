import type { BackendPermits, PoolFairnessLimits } from '../backend/organization-pool.ts';
import type { ChangeableSetting, Config } from '../config.ts';
import type { BackingPostgres } from '../embedded/embedded.ts';
import type { Observe } from '../observation.ts';
import { type CountLimit, LocalLimit, type OpenCountLimit, SharedLimit } from '../runtime/count-limit.ts';
import { LocalRate, type RateLimit } from '../runtime/token-buckets.ts';
import type { ToSupervisor } from './messages.ts';

/** What a worker shares with the others that serve the same ports. */
export interface SharedParts {
  /** How many workers there are. */
  readonly workers: number;
  /** Whether this one says what is the same for all of them. */
  readonly isSpeaker: boolean;
  /** Started by somebody else, who stops it too. */
  readonly postgres: BackingPostgres;
  /** Counts the backend sessions of all workers on a cluster. */
  permits(cluster: string, limits: PoolFairnessLimits): BackendPermits;
  /** Of all workers together. */
  readonly limits: ServiceLimits;
  /** Settings that have changed before this one was started. */
  readonly changes: readonly (readonly [setting: ChangeableSetting, value: string])[];
  /** A setting has changed: workers that are started later have it too. */
  set(setting: ChangeableSetting, value: string): void;
  /** The metrics of all workers, in Prometheus' text format. */
  metrics(): Promise<string>;
}

/** How many clients, connections and requests the service lets in: of all workers together, where there are several. */
interface ServiceLimits {
  /** Authenticated clients of the wire door, under one key. @param ownMax how many this process may have */
  clients(ownMax: number): CountLimit;
  /** Connections to the wire door that are not authenticated. @param ownMax how many this process may have */
  unauthenticated(ownMax: number): OpenCountLimit;
  /** Connections to the HTTP door. @param ownMax how many this process may have */
  httpConnections(ownMax: number): OpenCountLimit;
  /** Those of each organization that have shown a valid key: no more than are left for the others. @param ownMax as above, in all */
  authenticatedHttpConnections(ownMax: number): CountLimit;
  /** Connections of each organization to the wire door. */
  readonly clientsOfOrganization: CountLimit;
  /** Sessions of operators at the wire door, under one key. */
  readonly operators: CountLimit;
  /** Requests of each organization over HTTP that are under way. */
  readonly requestsOfOrganization: CountLimit;
  /** Requests over HTTP in a second of those organizations that have a limit for them. */
  readonly requestRates: RateLimit;
}

/** Sessions of operators, beyond POSTERN_CLIENTS_MAX. */
export const OPERATORS_MAX = 8;

/** The limits of a process that is alone. */
export function localLimits(config: Config): ServiceLimits {
  return {
    clients: (ownMax) => new LocalLimit(ownMax),
    unauthenticated: (ownMax) => () => new LocalLimit(ownMax),
    httpConnections: (ownMax) => () => new LocalLimit(ownMax),
    authenticatedHttpConnections: (ownMax) => new SharedLimit(ownMax),
    clientsOfOrganization: new LocalLimit(config.POSTERN_CLIENTS_PER_TENANT),
    operators: new LocalLimit(OPERATORS_MAX),
    requestsOfOrganization: new LocalLimit(config.POSTERN_HTTP_REQUESTS_PER_TENANT),
    requestRates: new LocalRate(),
  };
}

/** How many connections each door accepts. */
interface ConnectionLimits {
  readonly http: number;
  /** Authenticated clients at the wire door; as many unauthenticated connections are accepted. */
  readonly wire: number;
}

/** File descriptors for files, the ops port, the control database, cancel requests, and backend sessions being replaced. */
const RESERVED = 128;

/**
 * The connection limits of the settings. If the process may not open so many files, both doors get less: an equal part, or what
 * the setting says if that is less. So no door can use the descriptors of the other, of backend sessions or of the ops port.
 * @param openFiles how many files the process may have open; undefined: not known
 */
export function connectionLimits(
  { POSTERN_HTTP_CONNECTIONS_MAX: http, POSTERN_CLIENTS_MAX: wire }: Config,
  backendsMax: number,
  openFiles: number | undefined,
  observe: Observe,
): ConnectionLimits {
  const others = RESERVED + backendsMax;
  const wanted = http + 2 * wire;
  if (openFiles === undefined || others + wanted <= openFiles) return { http, wire };
  const left = openFiles - others;
  const limits = { http: lesser(http, Math.max(left / 3, left - 2 * wire)), wire: lesser(wire, Math.max(left / 3, (left - http) / 2)) };
  observe({
    name: 'service.warning',
    message: `the limit of open files (ulimit -n) is ${openFiles}, the settings need ${others + wanted}: POSTERN_HTTP_CONNECTIONS_MAX is lowered to ${limits.http}, POSTERN_CLIENTS_MAX to ${limits.wire}`,
  });
  return limits;
}

function lesser(asked: number, possible: number): number {
  return Math.max(1, Math.min(asked, Math.floor(possible)));
}

/** Sends to the supervisor; does nothing when it has ended, which ends the worker too. */
export function tellSupervisor(message: ToSupervisor): void {
  if (process.connected) process.send?.(message);
}
