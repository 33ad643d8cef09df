import { randomBytes } from 'node:crypto';
import type { Counted } from '../catalog/statement-counters.ts';
import type { ErrorFields, StatementShape } from '../protocol/backend.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { type CustomOptions, NO_OPTIONS } from '../syntax/session-traits.ts';

/** Settings by lower-case name. A map is never changed, so identical maps are known to be equal. */
export type Settings = ReadonlyMap<string, string>;

export const NO_SETTINGS: Settings = new Map();

/** Where a backend is told of the sessions that its client may see, for a statement that lists them: see hardening.ts. */
export const SESSIONS_SETTING = 'postern.sessions';

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

/**
 * The value of a setting that is a time.
 * @param value as Postgres shows it, or as a client has set it; undefined: it is not set
 * @returns undefined for one that cannot be read, or is not set
 * @see https://www.postgresql.org/docs/current/config-setting.html
 */
export function millisecondsOf(value: string | undefined): number | undefined {
  const [, number, unit = 'ms'] = /^\s*(\d+)\s*([a-z]*)\s*$/.exec(value ?? '') ?? [];
  const ms = Number(number) * (UNITS_MS[unit || 'ms'] ?? Number.NaN);
  return Number.isNaN(ms) ? undefined : ms;
}

function mayEndWithin(value: string | undefined, ms: number): boolean {
  if (value === undefined) return false;
  const limitMs = millisecondsOf(value);
  return limitMs === undefined || (limitMs !== 0 && limitMs < ms);
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
  /**
   * By identity: the client session whose statements of SQL (`PREPARE`) are here under their own names, in the state in which it has left
   * them. Undefined when they are closed, or there are none.
   */
  sqlHome: object | undefined;
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

  /** The session has these settings of its client's, as it says itself. */
  settingsFound(settings: Settings): void {
    const isTold = this.settings.has(SESSIONS_SETTING);
    this.settingsMade(settings);
    if (isTold) this.sessionsTold();
  }

  /** It has been told of sessions, which are no setting of its client's: they are reset with these. */
  sessionsTold(): void {
    if (!this.settings.has(SESSIONS_SETTING)) this.settings = new Map([...this.settings, [SESSIONS_SETTING, '']]);
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
    this.sqlHome = undefined;
    this.lastUser = undefined;
    this.hasOthersSequenceValues = false;
  }
}

/** A query text with its parameter types, which has the same name on every backend of an organization. */
export interface ServerStatement {
  /** The part of a Parse message after the name: the text, a NUL, and the parameter types. It is compared as a whole, never by hash. */
  readonly definition: Buffer;
  /** Its name on the server, without the NUL that ends it. */
  readonly name: Buffer;
  /** The settings that the meaning of its text depends on; undefined where the statement belongs to one client alone. */
  readonly context: string | undefined;
  /** A backslash in its text's plain strings is an escape: `standard_conforming_strings` was off when the client sent it. */
  readonly hasEscapes: boolean;
  /** Some backend has parsed it without an error. */
  proven: boolean;
  /** It has been sent to some backend. */
  isSent: boolean;
  /**
   * The description that clients have: the one of the first backend that was sent a Describe for it. A backend on which the
   * description is another one, because tables or the search path have changed, does not keep it prepared.
   */
  shape: StatementShape | undefined;
  /** How long it takes, once that was first asked for; null where its latency must not be used. */
  latency?: StatementLatency | null;
  /** Counts its runs, once one has been counted. */
  counted: Counted | undefined;
}

/** Names have a random prefix, so that no client can use another's statement, by accident or on purpose. */
const PREFIX = `postern_${randomBytes(6).toString('hex')}_`;
/** Matches the names of server statements in a text. */
export const SERVER_STATEMENT = new RegExp(`${PREFIX}\\d+`, 'g');

/** The SQL condition that a column `name` is none of theirs. */
export const IS_NO_SERVER_STATEMENT = `NOT pg_catalog.starts_with(name, '${PREFIX}')`;

export function mentionsServerStatement(text: string): boolean {
  return text.includes(PREFIX);
}

let named = 0;

/** A statement with a new, unique name. @param context undefined: it belongs to one client alone */
export function newServerStatement(definition: Buffer, context?: string, hasEscapes = false): ServerStatement {
  named += 1;
  return {
    definition,
    name: Buffer.from(`${PREFIX}${named}`),
    context,
    hasEscapes,
    proven: false,
    isSent: false,
    shape: undefined,
    counted: undefined,
  };
}

/**
 * The definition to prepare a statement from again. Its parameter types are those that its clients have been told, as
 * PostgreSQL keeps them when it plans a statement again.
 */
export function definitionToReprepare(definition: Buffer, shape: StatementShape | undefined): Buffer {
  if (shape?.parameters === undefined) return definition;
  return Buffer.concat([definition.subarray(0, definition.indexOf(0) + 1), shape.parameters]);
}

/**
 * What an error says of the plan of a statement that had been prepared. `invalidate`: tables or types have changed unnoticed. `forget`:
 * the statement may not fit the database any more. `check`: perhaps only its parameters have other types now.
 */
export type Staleness = 'invalidate' | 'forget' | 'check' | undefined;

/** The columns of the result have changed (0A000), or what the plan has the OID of is looked up in vain (XX000). */
const CHANGED_SCHEMA = /^(?:cached plan must not|cache lookup failed for|could not open relation with OID) /;
/** Its presence on the backend (26000, invalid_sql_statement_name), what it names (class 42), or another use of an OID. */
const STALE_PLAN = /^(?:0A000|26000|42...|XX000)$/;
/** A parameter's type does not take the value. */
const REFUSED_PARAMETER = /^2[23]/;
/** What raises the errors of PL/pgSQL's RAISE: a function's own, with any code. */
const RAISE = 'exec_stmt_raise';

/**
 * A plan refers to objects that may have been changed, or dropped and made anew, since it was made. Such a statement has had no effect.
 * @param isBound the statement had its parameters: it was being executed
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
export function stalenessOf({ code, message, routine }: ErrorFields, isBound: boolean): Staleness {
  if (STALE_PLAN.test(code) && routine !== RAISE) return CHANGED_SCHEMA.test(message) ? 'invalidate' : 'forget';
  return !isBound && REFUSED_PARAMETER.test(code) ? 'check' : undefined;
}

/** A statement that returns more is not short. */
const SMALL_BYTES = 16_384;
/** How many short runs in a row make a statement short. Each time it then runs long, twice as many are required. */
const MIN_SHORT_RUNS = 8;
const MAX_SHORT_RUNS = 8_192;

/** A statement is quick if its shortest recent run took no longer. */
const QUICK_MS = 0.5;
/** A statement is not quick if a larger share of its runs is slow. */
const MAX_SLOW_SHARE = 1 / 16;
/** A request may wait this long for others without harm. */
const NEGLIGIBLE_WAIT_MS = 1;
/** The minimum latency is taken of this many runs, and as many before them: on a busy machine it still shows a quick statement. */
const LEAST_WINDOW = 256;

/** The recent latency of a statement. */
export class StatementLatency {
  #short = 0;
  #wanted = MIN_SHORT_RUNS;
  #runs = 0;
  #leastMs = Number.POSITIVE_INFINITY;
  #leastMsBefore = Number.POSITIVE_INFINITY;
  /** The share of slow runs, as an exponentially weighted average. */
  #slowShare = 0;

  /** Enough runs in a row have been short, so that the next one is expected to be short. */
  get isShort(): boolean {
    return this.#short >= this.#wanted;
  }

  /** It takes about as long as waking an idle session. */
  get isQuick(): boolean {
    return this.isShort && this.#least <= QUICK_MS && this.#slowShare <= MAX_SLOW_SHARE;
  }

  /** Whether another request may be sent behind `count` requests like this, because they end soon enough. */
  mayFollow(count: number): boolean {
    return this.#least * count <= NEGLIGIBLE_WAIT_MS;
  }

  get #least(): number {
    return Math.min(this.#leastMs, this.#leastMsBefore);
  }

  /** Records a run on an otherwise idle session. @param durationMs from sending it until the answer */
  ranAlone(durationMs: number): void {
    if (durationMs < this.#leastMs) this.#leastMs = durationMs;
    this.#runs += 1;
    if (this.#runs % LEAST_WINDOW !== 0) return;
    this.#leastMsBefore = this.#leastMs;
    this.#leastMs = Number.POSITIVE_INFINITY;
  }

  /** Records a run. @param bytes the size of its result */
  ran(durationMs: number, bytes: number, baseline: LatencyBaseline): void {
    baseline.ran(durationMs);
    this.#slowShare += ((durationMs > baseline.slowMs ? 1 : 0) - this.#slowShare) * WEIGHT;
    if (durationMs > baseline.longMs || bytes > SMALL_BYTES) {
      this.wasLong();
      return;
    }
    this.#short += 1;
    if (this.#wanted > MIN_SHORT_RUNS && this.#short >= 2 * this.#wanted) this.#wanted >>= 1;
  }

  wasLong(): void {
    if (this.isShort) this.#wanted = Math.min(2 * this.#wanted, MAX_SHORT_RUNS);
    this.#short = 0;
  }
}

/** A run that takes longer is not short, unless the machine is busy. */
const LONG_MS = 20;
/** A run that takes longer delays the requests behind it noticeably, unless the machine is busy. */
const SLOW_MS = 2;
/** No request waits longer behind one that should be quick, unless the machine is busy: there are other backends. */
const STALL_TIMEOUT_MS = 5;
/** On a busy machine, a run counts as long or slow if it takes this many times the usual latency. */
const USUAL_FACTOR = 8;
/** The weight of the last run in the averages. */
const WEIGHT = 1 / 64;

/** The usual latency of all statements. It distinguishes a slow statement from a slow machine. */
export class LatencyBaseline {
  #usualMs = 1;

  /** A run that takes longer is not short. */
  get longMs(): number {
    return Math.max(LONG_MS, USUAL_FACTOR * this.#usualMs);
  }

  /** A run that takes longer is slow. */
  get slowMs(): number {
    return Math.max(SLOW_MS, USUAL_FACTOR * this.#usualMs);
  }

  /** How long requests wait behind one that should be quick. On a busy machine it is longer, because requeuing requests adds load. */
  get stallTimeoutMs(): number {
    return Math.max(STALL_TIMEOUT_MS, this.slowMs);
  }

  /** Records a run. A single very slow one is limited, so that it changes the average little. */
  ran(durationMs: number): void {
    this.#usualMs += (Math.min(durationMs, 2 * this.#usualMs + 1) - this.#usualMs) * WEIGHT;
  }
}
