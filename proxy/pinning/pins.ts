import type { Settings } from '../../src/backend/session-state.ts';
import {
  areAmong,
  type CustomOptions,
  MAX_CUSTOM_SETTINGS,
  NO_OPTIONS,
  optionsAmong,
  type SessionTraits,
  UNNAMED_OPTIONS,
  withOptions,
} from '../../src/syntax/session-traits.ts';
import { SequenceUse, SequenceValues } from './sequence-values.ts';
import type { HeldState, SessionFacts } from './state-probe.ts';

/** Why a session has to stay on its backend. */
export type PinReason = HeldState | 'session' | 'advisory_lock' | 'sequence' | 'seed' | 'setting' | 'oversized' | 'constant' | 'unknown';

const NONE: ReadonlySet<string> = new Set();
const NO_REASONS: ReadonlySet<PinReason> = new Set();
/** The kinds of state that a state probe finds or rules out. */
const PROBED: readonly HeldState[] = ['listen', 'prepared', 'cursor', 'temp'];

/**
 * `unsettled`: the session may have changed settings or tables since it was last idle, and others may not see that yet. `reset`: a
 * RESET has gone back to the server's defaults besides, and Postern has yet to restore the client's startup settings.
 */
export type SettingsState = 'settled' | 'unsettled' | 'reset';

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
    return !this.holdsState && this.sequences?.isKept !== true;
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
