import { newPreparedStatements, type ServerStatement } from './prepared-statements.ts';

/** Names and values of settings, names in lower case. Never changed in place, so that equal by identity means equal. */
export type Settings = ReadonlyMap<string, string>;

export const NO_SETTINGS: Settings = new Map();

/** Mostly they are one object, but those of clients that have come at the same time, or of a session that has been asked, are not. */
export function areEqual(some: Settings, others: Settings): boolean {
  if (some === others) return true;
  if (some.size !== others.size) return false;
  for (const [name, value] of some) if (others.get(name) !== value) return false;
  return true;
}

/** Settings that end what takes too long. */
const TIME_LIMITS = ['statement_timeout', 'transaction_timeout', 'lock_timeout'];
/** Longer than anything of ours takes, also where the processors are busy. */
const HURRY_MS = 100;
const UNITS_MS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** @param value as Postgres shows it, or as a client has written it. @see https://www.postgresql.org/docs/current/config-setting.html */
function mayEndWithin(value: string | undefined, ms: number): boolean {
  if (value === undefined) return false;
  const [, number, unit = 'ms'] = /^\s*(\d+)\s*([a-z]*)\s*$/.exec(value) ?? [];
  const limitMs = Number(number) * (UNITS_MS[unit || 'ms'] ?? Number.NaN);
  return limitMs !== 0 && !(limitMs >= ms);
}

/** Statements kept prepared on one backend; each costs the server some tens of kB. */
const MAX_PREPARED = 200;
const MAX_PREPARED_BYTES = 4 * 1024 * 1024;

/** A client session that has left something of its own on an idle backend, and should find it there again. */
export interface Reservation {
  /** Until then no other of the organization gets the backend; on performance.now()'s clock. */
  readonly heldUntil: number;
  /** After that, others get it only where there is none but reserved ones for them: those that are lasting last. */
  readonly isLasting: boolean;
  /** Another has got the backend, or it is closed. */
  lost(): void;
}

/** What a backend session holds beyond its login, as far as we know: what the next session finds there. */
export class SessionState {
  readonly prepared = newPreparedStatements(MAX_PREPARED, MAX_PREPARED_BYTES);
  /** Settings that the session has set, and that `RESET` would undo. */
  settings: Settings = NO_SETTINGS;
  /** The definition that the unnamed statement was made from, by identity; undefined when there is none that we know. */
  unnamed: object | undefined;
  /** Names (as Latin-1) of statements that only stand in the way and are to be closed before the next request. */
  readonly staleNames = new Set<string>();
  /** Who used the session last, by identity. */
  lastUser: object | undefined;
  /** Values that sequences gave to other sessions than the last user's present one may be there. */
  hasOthersSequenceValues = false;
  /** For whom it is kept while it is idle. */
  reservation: Reservation | undefined;
  /** Why the session that has the backend keeps it beyond its transactions. */
  pinnedFor: ReadonlySet<string> | undefined;
  /** It is not to serve anybody else: what new sessions start with has changed since it did, or it may yet be canceled. */
  retired = false;

  /** What is run for the next session might not keep the time limits that the session has set. */
  get isHurried(): boolean {
    return this.settings.size > 0 && TIME_LIMITS.some((name) => mayEndWithin(this.settings.get(name), HURRY_MS));
  }

  /** Nothing that `DISCARD ALL` would not have removed is left. */
  get pristine(): boolean {
    return this.settings.size === 0 && this.prepared.size === 0 && this.staleNames.size === 0 && this.lastUser === undefined;
  }

  /** A statement is not good any more, or may not be there: it is closed before the next request of anybody's. */
  unprepare(statement: ServerStatement): void {
    this.prepared.delete(statement);
    this.staleNames.add(statement.name.toString('latin1'));
  }

  /** Statements have been taken away, nobody knows which. */
  unprepareAll(): void {
    for (const statement of [...this.prepared.values()]) this.unprepare(statement);
  }

  /** @returns the names of the leftovers, which are the caller's to close */
  takeStaleNames(): readonly string[] {
    const names = [...this.staleNames];
    this.staleNames.clear();
    return names;
  }

  /** After `DISCARD ALL`. */
  clear(): void {
    this.prepared.clear();
    this.settings = NO_SETTINGS;
    this.unnamed = undefined;
    this.staleNames.clear();
    this.lastUser = undefined;
    this.hasOthersSequenceValues = false;
  }
}
