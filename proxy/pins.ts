import { performance } from 'node:perf_hooks';
import { IS_NO_SERVER_STATEMENT, type Reservation, type Settings } from '../src/backend/session-state.ts';
import { decodeTextRow, type ErrorFields } from '../src/protocol/backend.ts';
import { queryMessage } from '../src/protocol/frontend.ts';
import {
  areAmong,
  type CustomOptions,
  MAX_CUSTOM_SETTINGS,
  NO_OPTIONS,
  optionsAmong,
  type SessionTraits,
  UNNAMED_OPTIONS,
  withOptions,
} from '../src/syntax/session-traits.ts';

/** Why a session has to stay on its backend. */
export type PinReason =
  | HeldState
  | 'prepared'
  | 'session'
  | 'advisory_lock'
  | 'sequence'
  | 'seed'
  | 'setting'
  | 'oversized'
  | 'constant'
  | 'unknown';

const NONE: ReadonlySet<string> = new Set();
/** A session with more statements that SQL has prepared stays on its backend. */
export const MAX_SQL_STATEMENTS = 100;
/** So does one that has prepared statements in longer texts. */
const MAX_SOURCE_BYTES = 3_000;
const NO_REASONS: ReadonlySet<PinReason> = new Set();
/** The kinds of state that a state probe finds or rules out. */
const PROBED: readonly HeldState[] = ['listen', 'cursor', 'temp'];

/**
 * `unsettled`: the session may have changed settings or tables since it was last idle, and others may not see that yet. `reset`: a
 * RESET has gone back to the server's defaults besides, and Postern has yet to restore the client's startup settings.
 */
type SettingsState = 'settled' | 'unsettled' | 'reset';

/** What is known of a session's use of advisory locks. */
interface AdvisoryLocks {
  /** The service has to find out whether the session holds any. */
  checkDue: boolean;
  /** A statement prepared in SQL (PREPARE) may take some whenever it is executed. */
  mayBeTakenUnseen: boolean;
}

/** Is told when a session becomes pinned for a reason, and when the reason ends. */
export type PinListener = (reason: PinReason, pinned: boolean) => void;

/**
 * The state of a client's session that outlives its transactions: the settings that each backend is given, and the reasons
 * that pin the session to one backend. SQL text only raises suspicion; the server is asked what is really there.
 */
export class Pins {
  /** What the session started with: `RESET` goes back to it. */
  #startup: Settings;
  readonly #tell: PinListener;
  readonly #sequenceUse: SequenceUse;
  /** Why the session is pinned; for most sessions there is no reason. */
  reasons: ReadonlySet<PinReason> = NO_REASONS;
  /** What sequences gave to the session; undefined while none of its statements uses them. */
  sequences: SequenceValues | undefined;
  /** Undefined while none of its statements uses advisory locks. */
  locks: AdvisoryLocks | undefined;
  /** Custom settings of the client, which the server does not list: they have to be asked for by name. */
  #custom: ReadonlySet<string> = NONE;
  /** The settings that the session should have. */
  settings: Settings;
  /** The value of `standard_conforming_strings` that the client was told at its login. */
  startStrings: string | undefined;
  /** The customized options that exist in the session, whether or not they are set. */
  customOptions: CustomOptions;
  /** Options that the session's statements have named, perhaps only in a string. The server is asked whether they exist. */
  unconfirmedOptions = NO_OPTIONS;
  /** The session has had temporary tables. */
  hadTemporary = false;
  /** The client has prepared statements by SQL. */
  hasSqlStatements = false;
  /** The server has to be asked what the session holds. */
  suspected = false;
  /** Set back to `settled` when the session is idle and its settings are restored. */
  settingsState: SettingsState = 'settled';

  /**
   * @param wantsOwnBackend the client has asked for a backend of its own (`postern.pool=session`)
   * @param sequences how the organization's sessions use them
   */
  constructor(startup: Settings, wantsOwnBackend: boolean, tell: PinListener, sequences = new SequenceUse()) {
    this.#startup = startup;
    this.#tell = tell;
    this.#sequenceUse = sequences;
    this.settings = startup;
    this.customOptions = optionsAmong(startup.keys());
    if (startup.has(UNMOVABLE)) this.keep('setting');
    if (wantsOwnBackend) this.keep('session');
    if (this.#makesTemporary) this.keep('temp');
    this.#addCustom([...startup.keys()].filter((name) => name.includes('.')));
  }

  /** Another session's values must not be asked for in the place of this one's. */
  get maySequencesBeAskedFor(): boolean {
    return this.#sequenceUse.mayBeAskedFor;
  }

  /** The backend has state that no reset removes. */
  get cannotBeReset(): boolean {
    return this.#has('seed');
  }

  /** The server does not take the value any more. The session goes on without it, as with a value of `ALTER ROLE … SET` that it refuses. */
  settingRefused(name: string): void {
    const without = (settings: Settings) => new Map([...settings].filter(([other]) => other !== name));
    if (this.#startup.get(name) === this.settings.get(name)) this.#startup = without(this.#startup);
    this.settings = without(this.settings);
  }

  /** The session has, or may have, temporary tables, so that names may mean something else than in other sessions. */
  get namesAreOwn(): boolean {
    return this.#has('temp') || this.#has('unknown');
  }

  get customSettings(): ReadonlySet<string> {
    return this.#custom;
  }

  /** The backend has, or may have, state that another session must not find. */
  get holdsState(): boolean {
    return this.reasons.size > 0 || this.suspected || this.locks?.checkDue === true;
  }

  /** The session may share a backend's pipeline with others. */
  get isShareable(): boolean {
    return !this.holdsState && this.sequences?.isKept !== true && !this.hasSqlStatements;
  }

  /**
   * The settings on which the meaning of a text depends. Sessions with the same settings have the same context.
   * @returns undefined when the settings are not known
   */
  get context(): string | undefined {
    return this.settingsState !== 'settled' || this.suspected ? undefined : contextOf(this.settings);
  }

  /** With `pg_temp` in the search path, CREATE TABLE can create a temporary table without the keyword. */
  get #makesTemporary(): boolean {
    return PG_TEMP.test(this.settings.get('search_path') ?? '');
  }

  #addCustom(names: readonly string[]): void {
    if (this.#custom.size <= MAX_CUSTOM_SETTINGS && names.some((name) => !this.#custom.has(name))) {
      this.#custom = new Set([...this.#custom, ...names]);
    }
  }

  statementSeen(traits: SessionTraits): void {
    if (traits.changesSettings) this.unsettle();
    if (traits.advancesSequences) this.#sequencesUsed().moved(traits.insertsWithoutReturning);
    if (traits.callsSequenceFunction) this.#sequencesUsed().called();
    const leavesState = traits.leavesState === 'yes';
    if (leavesState) this.suspected = true;
    if (leavesState && traits.resets && this.#startup.size > 0) this.settingsState = 'reset';
    this.#addCustom(traits.customSettings);
    if (traits.customOptions.size > 0) this.#optionsNamed(traits.customOptions);
    if (traits.setsUnknownSettings || this.#custom.size > MAX_CUSTOM_SETTINGS) this.keep('setting');
    if (traits.touchesAdvisoryLocks || (traits.deallocates && this.locks?.mayBeTakenUnseen === true)) this.#lockSeen(leavesState);
  }

  /** What their names are need not be asked. */
  #optionsNamed(options: CustomOptions): void {
    if (areAmong(options, this.customOptions)) return;
    if (options.has(UNNAMED_OPTIONS)) this.customOptions = withOptions(this.customOptions, new Set([UNNAMED_OPTIONS]));
    if (areAmong(options, this.customOptions)) return;
    this.unconfirmedOptions = withOptions(this.unconfirmedOptions, options);
    this.suspected = true;
  }

  /** The options that may exist on the session's backend. */
  get optionsLeft(): CustomOptions {
    return withOptions(this.customOptions, this.unconfirmedOptions);
  }

  #lockSeen(mayBeTakenUnseen: boolean): void {
    this.keep('advisory_lock');
    this.locks ??= { checkDue: true, mayBeTakenUnseen };
    this.locks.checkDue = true;
    this.locks.mayBeTakenUnseen ||= mayBeTakenUnseen;
  }

  unsettle(): void {
    if (this.settingsState === 'settled') this.settingsState = 'unsettled';
  }

  #sequencesUsed(): SequenceValues {
    this.sequences ??= new SequenceValues(this.#sequenceUse, (pinned) => this.#tell('sequence', pinned));
    return this.sequences;
  }

  #has(reason: PinReason): boolean {
    return this.reasons.has(reason);
  }

  /** Pins the session to its backend. */
  keep(reason: PinReason): void {
    if (this.#has(reason)) return;
    if (reason === 'temp') this.hadTemporary = true;
    this.reasons = new Set([...this.reasons, reason]);
    this.#tell(reason, true);
  }

  #drop(reason: PinReason): void {
    if (!this.#has(reason)) return;
    const others = [...this.reasons].filter((other) => other !== reason);
    this.reasons = others.length === 0 ? NO_REASONS : new Set(others);
    this.#tell(reason, false);
  }

  /** The session is over. */
  end(): void {
    for (const reason of this.reasons) this.#drop(reason);
    this.sequences?.lost();
  }

  /**
   * The role's default for `standard_conforming_strings` is another one than at the session's start. The session keeps that of its start, as
   * one on a single backend does, so that its strings mean what the client takes them for.
   */
  keepsStartStrings(): void {
    const { startStrings } = this;
    if (startStrings === undefined || this.#startup.has(STRINGS)) return;
    this.#startup = new Map([...this.#startup, [STRINGS, startStrings]]);
    if (!this.settings.has(STRINGS)) this.settings = new Map([...this.settings, [STRINGS, startStrings]]);
  }

  /** The server has reported a changed setting. Others, which it does not report, may have changed, too. */
  parameterChanged(parameter: string, value: string): void {
    if (this.settings.get(parameter.toLowerCase()) === value) return;
    this.suspected = true;
    this.unsettle();
  }

  probed({ settings, held, options }: SessionFacts): void {
    this.#drop('unknown');
    this.customOptions = withOptions(this.customOptions, options);
    this.unconfirmedOptions = NO_OPTIONS;
    if (settings.has(UNMOVABLE)) this.keep('setting');
    const missing = [...this.#startup].filter(([name]) => !settings.has(name));
    this.settings = missing.length === 0 ? settings : new Map([...settings, ...missing]);
    for (const kind of PROBED) {
      if (held.has(kind) || (kind === 'temp' && this.#makesTemporary)) this.keep(kind);
      else this.#drop(kind);
    }
  }

  /** @param mustStay one of the statements that SQL has prepared on this backend cannot be had elsewhere */
  statementsHeld(mustStay: boolean): void {
    if (mustStay) this.keep('prepared');
    else this.#drop('prepared');
  }

  /** The probe has failed, so the session may hold any state. */
  probeFailed(): void {
    this.keep('unknown');
    this.suspected = true;
  }

  locksHeld(held: boolean): void {
    if (!held && this.locks?.checkDue !== true) this.#drop('advisory_lock');
  }

  /** `DISCARD ALL` has run. */
  discarded(): void {
    for (const reason of this.reasons) if (reason !== 'session') this.#drop(reason);
    this.sequences?.lost();
    if (this.locks !== undefined) this.locks.checkDue = false;
    this.settings = this.#startup;
    this.suspected = true;
  }
}

const STRINGS = 'standard_conforming_strings';
/** It cannot be set on a backend that has had temporary tables. */
const UNMOVABLE = 'temp_buffers';
/** Settings whose values name something that may be gone by now, and {@link UNMOVABLE}. */
const REFUSABLE: ReadonlySet<string> = new Set([
  UNMOVABLE,
  'default_table_access_method',
  'default_tablespace',
  'default_text_search_config',
  'role',
  'session_authorization',
  'temp_tablespaces',
]);
/** Of PL/pgSQL's own settings any value is taken where it has not been loaded yet. */
const OF_LIBRARY = /^plpgsql\./;
const PG_TEMP = /\bpg_temp\b/i;
/** Settings that never affect what a text does. */
const WITHOUT_EFFECT: ReadonlySet<string> = new Set(['application_name']);
const contexts = new WeakMap<Settings, string>();

function contextOf(settings: Settings): string {
  let context = contexts.get(settings);
  if (context === undefined) {
    const entries = [...settings].filter(([name]) => !WITHOUT_EFFECT.has(name)).sort();
    context = entries.length === 0 ? '' : JSON.stringify(entries);
    contexts.set(settings, context);
  }
  return context;
}

/** The session state that outlives its transaction, as the server reports it. */
interface SessionFacts {
  /** The settings that the session has set, with the values that the server shows. */
  readonly settings: Settings;
  /** The kinds of state that pin the session to its backend. */
  readonly held: ReadonlySet<HeldState>;
  /** The customized options that exist, of those asked for. */
  readonly options: CustomOptions;
  readonly statements: FoundStatements;
}

type HeldState = 'listen' | 'cursor' | 'temp';

/** The statements that a backend has under names of its client, by name; both as Latin-1. */
export interface FoundStatements {
  /** Those of `PREPARE`, with the texts in which they were prepared; empty for a long one. */
  readonly bySql: ReadonlyMap<string, string>;
  readonly byProtocol: ReadonlySet<string>;
}

/** Takes the place of a statement's name that the client's present encoding may not have. */
export const UNKNOWN_NAME = '?';

/** The SQL condition that the server converts a column's letters for the client, which may fail. */
function isConverted(column: string): string {
  const length = (of: string) => `pg_catalog.${of}(${column})`;
  const encoding = (of: string) => `pg_catalog.current_setting('${of}_encoding')`;
  return `(${length('octet_length')} OPERATOR(pg_catalog.<>) ${length('length')} AND ${encoding('client')} OPERATOR(pg_catalog.<>) ${encoding('server')})`;
}

/** All names are qualified, because the client chooses the search path. pg_settings does not list the role. */
const PROBE = `SELECT 'setting', name, setting FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'
UNION ALL (SELECT 'setting', 'role', r FROM pg_catalog.current_setting('role') r WHERE r OPERATOR(pg_catalog.<>) 'none')
UNION ALL (SELECT 'listen', NULL, NULL FROM pg_catalog.pg_listening_channels() LIMIT 1)
UNION ALL (SELECT CASE WHEN from_sql THEN 'statement' ELSE 'parsed' END, CASE WHEN ${isConverted('name')} THEN '${UNKNOWN_NAME}' ELSE name END,
  CASE WHEN from_sql AND pg_catalog.octet_length(statement) OPERATOR(pg_catalog.<=) ${MAX_SOURCE_BYTES} AND NOT ${isConverted('statement')}
  THEN statement END FROM pg_catalog.pg_prepared_statements WHERE ${IS_NO_SERVER_STATEMENT} LIMIT ${MAX_SQL_STATEMENTS + 1})
UNION ALL (SELECT 'cursor', NULL, NULL FROM pg_catalog.pg_cursors WHERE is_holdable LIMIT 1)
UNION ALL (SELECT 'temp', NULL, NULL WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND (
  EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())))`;

/** These settings belong to the current transaction and not to the session. `transaction_timeout` does not. */
const TRANSACTIONAL: ReadonlySet<string> = new Set(['transaction_isolation', 'transaction_read_only', 'transaction_deferrable']);

/** Asks the server for the state of its session and collects the reply. */
export class StateProbe {
  readonly message: Buffer;
  readonly #settings = new Map<string, string>();
  readonly #held = new Set<HeldState>();
  readonly #options = new Set<string>();
  readonly #bySql = new Map<string, string>();
  readonly #byProtocol = new Set<string>();

  /**
   * @param custom names of settings that the server does not list
   * @param options customized options that may exist
   */
  constructor(custom: Iterable<string>, options: CustomOptions) {
    const ask = (kind: string, names: Iterable<string>) =>
      [...names].map(literal).map((name) => `\nUNION ALL SELECT '${kind}', ${name}, pg_catalog.current_setting(${name}, true)`);
    this.message = queryMessage([PROBE, ...ask('setting', custom), ...ask('option', options)].join(''));
  }

  /** @param body of a DataRow with three text columns */
  row(body: Buffer): void {
    const [kind, name, value] = decodeTextRow(body, 0);
    if (kind === 'setting' && name != null && value != null) {
      // A custom setting that has been reset still exists, with an empty value.
      if (!TRANSACTIONAL.has(name) && !(name.includes('.') && value === '')) this.#settings.set(name.toLowerCase(), value);
    } else if (kind === 'option') {
      if (name != null && value != null) this.#options.add(name);
    } else if (kind === 'statement' || kind === 'parsed') this.#statement(kind, body);
    else if (kind === 'listen' || kind === 'cursor' || kind === 'temp') this.#held.add(kind);
  }

  /** Names and texts are in the client's encoding. */
  #statement(kind: 'statement' | 'parsed', body: Buffer): void {
    const [, name, source] = decodeTextRow(body, 0, 'latin1');
    if (name == null) return;
    if (kind === 'parsed') this.#byProtocol.add(name);
    else this.#bySql.set(name, source ?? '');
  }

  facts(): SessionFacts {
    const statements = { bySql: this.#bySql, byProtocol: this.#byProtocol };
    return { settings: this.#settings, held: this.#held, options: this.#options, statements };
  }
}

/** For this long, other sessions wait for a backend with values that its client has not asked for yet. */
const HOLD_MS = 1_000;
/** After this many values without a `currval` or `lastval`, the organization is assumed never to call these. */
const MAX_UNASKED = 1_000;
/** After this many backends were held in vain, none is held any more. */
const MAX_HELD_IN_VAIN = 16;

/** Whether the sessions of an organization call `currval` and `lastval`. */
export class SequenceUse {
  #isAskedFor = false;
  #unasked = 0;
  #heldInVain = MAX_HELD_IN_VAIN;

  moved(): void {
    if (this.#unasked < MAX_UNASKED) this.#unasked += 1;
  }

  /** A session has asked for a value that it was given in an earlier transaction. */
  asked(): void {
    this.#heldInVain = 0;
  }

  called(): void {
    this.#isAskedFor = true;
  }

  heldInVain(): void {
    if (this.#heldInVain < MAX_HELD_IN_VAIN) this.#heldInVain += 1;
  }

  /** Some session may ask for a value. Even the first one that does should find its own. */
  get mayBeAskedFor(): boolean {
    return this.#isAskedFor || this.#unasked < MAX_UNASKED;
  }

  /** Clients ask for values soon after these were given. */
  get isAskedAtOnce(): boolean {
    return this.#heldInVain < MAX_HELD_IN_VAIN;
  }
}

/**
 * The values that sequences gave to a session, for `currval` and `lastval`. PostgreSQL keeps them in the backend, and they
 * cannot be moved to another one, because `setval` would change the sequence for all. So other sessions get such a backend only
 * when no other is free, and that of a session that has asked for such values last of all. The values are then lost.
 */
export class SequenceValues implements Reservation {
  heldUntil = 0;
  readonly #use: SequenceUse;
  readonly #pinned: (pinned: boolean) => void;
  /** The client calls `currval` or `lastval`. */
  #asks = false;
  /** The backend has values of this session. */
  #hasValues = false;
  #isPinned = false;
  /** The client is expected to ask for a value soon. */
  #isAwaited = false;
  /** When the backend became idle with such a value; on performance.now()'s clock. */
  #restsSince: number | undefined;
  /** The client did not ask for its last value while the backend was held. */
  #isLate = false;

  /** @param pinned is told whether the session needs its backend because its client asks for values */
  constructor(use: SequenceUse, pinned: (pinned: boolean) => void) {
    this.#use = use;
    this.#pinned = pinned;
  }

  /** The session must not share its backend with others. */
  get isKept(): boolean {
    return this.#isPinned || this.#isAwaited;
  }

  /** The session should get the same backend again, if possible. */
  get isReserved(): boolean {
    return this.isKept || (this.#hasValues && this.#use.mayBeAskedFor);
  }

  get isLasting(): boolean {
    return this.#isPinned;
  }

  /** A statement calls `currval` or `lastval`. */
  called(): void {
    this.#use.called();
    this.#asks = true;
    this.#isLate = false;
    this.#isAwaited = false;
    this.#restsSince = undefined;
    if (!this.#hasValues) return;
    this.#use.asked();
    this.#pin(true);
  }

  /** @param isHidden the client has not been told the value */
  moved(isHidden: boolean): void {
    this.#use.moved();
    this.#hasValues = true;
    if (this.#asks) this.#pin(true);
    if ((this.#asks || isHidden) && !this.#isLate && this.#use.isAskedAtOnce) this.#isAwaited = true;
  }

  /** The backend becomes idle. @returns its reservation, if it is reserved */
  rest(): Reservation | undefined {
    if (!this.isReserved) return undefined;
    this.heldUntil = 0;
    if (!this.#isAwaited) return this;
    const now = performance.now();
    this.#restsSince ??= now;
    this.heldUntil = this.#restsSince + HOLD_MS;
    if (now >= this.heldUntil) this.#holdExpired();
    return this;
  }

  #holdExpired(): void {
    this.#isAwaited = false;
    this.#restsSince = undefined;
    this.#isLate = true;
    this.#use.heldInVain();
  }

  lost(): void {
    if (this.#isAwaited) this.#holdExpired();
    this.#hasValues = false;
    this.#pin(false);
  }

  #pin(pinned: boolean): void {
    if (this.#isPinned === pinned) return;
    this.#isPinned = pinned;
    this.#pinned(pinned);
  }
}

/**
 * The SQL that changes a session from one set of settings to another.
 * @returns undefined when they are equal
 */
export function settingsChange(from: Settings, to: Settings): string | undefined {
  const reset = [...from.keys()].filter((name) => !to.has(name)).map((name) => `RESET ${quotedName(name)};`);
  const set = [...to].filter(([name, value]) => from.get(name) !== value).map(([name, value]) => setting(name, value));
  if (reset.length === 0 && set.length === 0) return undefined;
  return `${reset.join('')}${set.length === 0 ? '' : `SELECT ${set.join(', ')}`}`;
}

function setting(name: string, value: string): string {
  return `pg_catalog.set_config(${literal(name)}, ${literal(value)}, false)`;
}

/** Whether a backend may refuse one of the settings in which `to` differs, although another backend has taken its value. */
export function mayBeRefused(from: Settings, to: Settings): boolean {
  for (const [name, value] of to) if ((REFUSABLE.has(name) || OF_LIBRARY.test(name)) && from.get(name) !== value) return true;
  return false;
}

/** The SQL of {@link settingsChange} in parts: what is reset, and each setting that is made, by its name. */
export function settingsChanges(from: Settings, to: Settings): readonly (readonly [name: string | undefined, sql: string])[] {
  const reset = settingsChange(from, new Map([...from].filter(([name]) => to.has(name))));
  const made = [...to]
    .filter(([name, value]) => from.get(name) !== value)
    .map(([name, value]) => [name, `SELECT ${setting(name, value)}`] as const);
  return reset === undefined ? made : [[undefined, reset], ...made];
}

/** Whether the server refuses a setting's value: it is invalid, or not allowed, or there is no such setting (any more). */
export function isRefusedSetting({ code }: ErrorFields): boolean {
  return /^(?:22|42)/.test(code);
}

/** Whether the server refuses to set `temp_buffers` because its session has had temporary tables, which may have been another client's. */
export function isAboutTemporaryTables({ code, message, detail = '' }: ErrorFields): boolean {
  return code === '22023' && message.includes(`"${UNMOVABLE}"`) && detail.includes('temporary tables');
}

/**
 * The SQL that has customized options exist, empty, as they do in a session that has set them until the end of a transaction.
 * @returns undefined when there is none to make
 */
export function makeOptions(options: readonly string[]): string | undefined {
  if (options.length === 0) return undefined;
  const names = options.map((name) => `(${literal(name)})`).join(', ');
  return `SELECT pg_catalog.set_config(n, '', true) FROM (VALUES ${names}) AS o (n) WHERE pg_catalog.current_setting(n, true) IS NULL`;
}

/** A custom setting's name has two parts. */
function quotedName(name: string): string {
  return name
    .split('.')
    .map((part) => `"${part.replaceAll('"', '""')}"`)
    .join('.');
}

/** A string literal that is right with every value of `standard_conforming_strings`. */
export function literal(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`;
  return text.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted;
}
