import { BoundedMap } from '../runtime/bounded-map.ts';
import { type CustomOptions, NO_OPTIONS } from '../syntax/session-traits.ts';
import type { ServerStatement } from './server-statement.ts';

/** Settings by lower-case name. A map is never changed, so identical maps are known to be equal. */
export type Settings = ReadonlyMap<string, string>;

export const NO_SETTINGS: Settings = new Map();

/** Mostly both are the same object. Settings of clients that connected at the same time, or read from a server, are not. */
export function areEqual(some: Settings, others: Settings): boolean {
  if (some === others) return true;
  if (some.size !== others.size) return false;
  for (const [name, value] of some) if (others.get(name) !== value) return false;
  return true;
}

/** Settings that cancel statements after a time. */
const TIMEOUTS = ['statement_timeout', 'transaction_timeout', 'lock_timeout'];
/** Postern's own statements between two leases take less than this, even on a busy machine. */
const SHORT_TIMEOUT_MS = 100;
const UNITS_MS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** @param value as Postgres shows it, or as a client has set it @see https://www.postgresql.org/docs/current/config-setting.html */
function mayEndWithin(value: string | undefined, ms: number): boolean {
  if (value === undefined) return false;
  const [, number, unit = 'ms'] = /^\s*(\d+)\s*([a-z]*)\s*$/.exec(value) ?? [];
  const limitMs = Number(number) * (UNITS_MS[unit || 'ms'] ?? Number.NaN);
  return limitMs !== 0 && !(limitMs >= ms);
}

/** How many statements are kept prepared on one backend. Each needs some tens of kB of the server's memory. */
const MAX_PREPARED = 200;
const MAX_PREPARED_BYTES = 4 * 1024 * 1024;

/** What one backend has prepared, by identity, least recently used first. */
export type PreparedStatements = BoundedMap<ServerStatement, ServerStatement>;

/** @param maxBytes limit of all definitions together; a single statement may exceed it */
export function newPreparedStatements(max: number, maxBytes: number): PreparedStatements {
  return new BoundedMap({ maxEntries: max, maxWeight: maxBytes, weightOf: definitionBytes });
}

function definitionBytes({ definition }: ServerStatement): number {
  return definition.length;
}

/** An idle backend is reserved for a client session that has left state on it. */
export interface Reservation {
  /** Until this time no other session gets the backend; by `performance.now()`. */
  readonly heldUntil: number;
  /** After that time other sessions get it only if no unreserved backend is idle; lasting reservations are broken last. */
  readonly isLasting: boolean;
  /** Called when another session gets the backend, or it is closed. */
  lost(): void;
}

/** The known state of a backend session since its login, which the next client session would find there. */
export class SessionState {
  readonly prepared = newPreparedStatements(MAX_PREPARED, MAX_PREPARED_BYTES);
  /** Settings made by SET, which `RESET` would undo. Changed by {@link settingsMade}. */
  settings: Settings = NO_SETTINGS;
  /**
   * The customized options that exist, as far as statements have named them. Not even `DISCARD ALL` removes them. Whoever has not set
   * them would find them empty instead of NULL, so only sessions that have set all of them get this one.
   */
  customOptions: CustomOptions = NO_OPTIONS;
  /** One of the settings is a timeout that is so short that Postern's own statements might exceed it. */
  hasShortTimeout = false;
  /** The definition of the unnamed statement, by identity; undefined when it is not known. */
  unnamed: object | undefined;
  /** Names (as Latin-1) of statements that no client uses any more. They are closed before the next request. */
  readonly staleNames = new Set<string>();
  /** The client that used the session last, by identity. */
  lastUser: object | undefined;
  /** The session may hold sequence values (currval, lastval) of other client sessions than the last user's present one. */
  hasOthersSequenceValues = false;
  /** Set while the idle backend is reserved. */
  reservation: Reservation | undefined;
  /** Why the client session that has the backend is pinned to it. */
  pinnedFor: ReadonlySet<string> | undefined;
  /** No further client session may use it: the defaults for new sessions have changed since it started, or a cancel may still arrive. */
  retired = false;

  /** The session has these settings now. */
  settingsMade(settings: Settings): void {
    this.settings = settings;
    this.hasShortTimeout = TIMEOUTS.some((name) => mayEndWithin(settings.get(name), SHORT_TIMEOUT_MS));
  }

  /** The session is as `DISCARD ALL` leaves it, as far as known. */
  get pristine(): boolean {
    return (
      this.settings.size === 0 &&
      this.customOptions.size === 0 &&
      this.prepared.size === 0 &&
      this.staleNames.size === 0 &&
      this.lastUser === undefined
    );
  }

  /** Called when a statement is no longer valid, or may not exist. It is closed before the next request. */
  unprepare(statement: ServerStatement): void {
    this.prepared.delete(statement);
    this.staleNames.add(statement.name.toString('latin1'));
  }

  /** Called when statements have been deallocated and it is not known which. */
  unprepareAll(): void {
    for (const statement of [...this.prepared.values()]) this.unprepare(statement);
  }

  /** @returns the stale names, whose statements the caller closes */
  takeStaleNames(): readonly string[] {
    const names = [...this.staleNames];
    this.staleNames.clear();
    return names;
  }

  /** Called after `DISCARD ALL`. */
  clear(): void {
    this.prepared.clear();
    this.settings = NO_SETTINGS;
    this.hasShortTimeout = false;
    this.unnamed = undefined;
    this.staleNames.clear();
    this.lastUser = undefined;
    this.hasOthersSequenceValues = false;
  }
}
