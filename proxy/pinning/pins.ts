import { NO_SETTINGS, type Settings } from '../../src/backend/session-state.ts';
import { MAX_CUSTOM_SETTINGS } from '../../src/syntax/traits/session-state.ts';
import type { SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import { SequenceUse, SequenceValues } from './sequence-values.ts';
import type { HeldState, SessionFacts } from './state-probe.ts';

/** Why a session has to stay on its backend. */
export type PinReason = HeldState | 'session' | 'advisory_lock' | 'sequence' | 'seed' | 'setting' | 'oversized' | 'unknown';

const NONE: ReadonlySet<string> = new Set();
const NO_REASONS: ReadonlySet<PinReason> = new Set();
/** What a probe tells, one way or the other. */
const PROBED: readonly HeldState[] = ['listen', 'prepared', 'cursor', 'temp'];

/** Hears that a session has come to be pinned for a reason, or is so no longer. */
export type PinListener = (reason: PinReason, pinned: boolean) => void;

/**
 * What one client's session holds beyond its transactions: the settings that travel with it from backend to backend, and
 * the state that keeps it on one. Text only raises suspicion; what is really there, the server is asked.
 */
export class Pins {
  /** What the session started with: `RESET` goes back to it. */
  readonly #startup: Settings;
  readonly #tell: PinListener;
  readonly sequences: SequenceValues;
  /** Most sessions never have any. */
  #reasons: Set<PinReason> | undefined;
  /** A statement of SQL (PREPARE) may have taken advisory locks when it was executed. */
  #mayLockUnseen = false;
  /** Settings of the client's own, which the server has to be asked for by name. */
  #custom: ReadonlySet<string> = NONE;
  /** The settings that the session should have. */
  settings: Settings;
  /** The settings that its backend really has, as last heard. */
  inForce: Settings;
  /** The server has to be asked what the session holds. */
  suspected = false;
  /** The platform has to be asked whether the session holds advisory locks. */
  lockCheckDue = false;
  defaultsChanged = false;
  /** Settings or tables may have changed since the session was last at rest, for itself alone. */
  unsettled = false;
  /** Settings have gone back to what the server knows as the session's start, and are on their way to what it really was. */
  restores = false;

  /**
   * @param whole the client wants a session of its own (`postern.pool=session`)
   * @param sequences how the organization's sessions use them
   */
  constructor(startup: Settings, whole: boolean, tell: PinListener, sequences = new SequenceUse()) {
    this.#startup = startup;
    this.#tell = tell;
    this.sequences = new SequenceValues(sequences, (pinned) => tell('sequence', pinned));
    this.settings = startup;
    this.inForce = startup;
    if (whole) this.keep('session');
    if (this.#makesTemporary) this.keep('temp');
    this.#addCustom([...startup.keys()].filter((name) => name.includes('.')));
  }

  get pinned(): boolean {
    return this.#reasons !== undefined && this.#reasons.size > 0;
  }

  /** What is left on the backend cannot be taken away. */
  get indelible(): boolean {
    return this.#has('seed');
  }

  /** Names may mean something else in this session than in others: it has, or may have, temporary tables. */
  get namesAreOwn(): boolean {
    return this.#has('temp') || this.#has('unknown');
  }

  get customSettings(): ReadonlySet<string> {
    return this.#custom;
  }

  get reasons(): ReadonlySet<PinReason> {
    return this.#reasons ?? NO_REASONS;
  }

  /** Something is left on the backend that another must not find, or might be. */
  get holdsState(): boolean {
    return this.pinned || this.suspected || this.lockCheckDue;
  }

  /** The backend may run others' requests behind this session's, and this session's behind others'. */
  get isShareable(): boolean {
    return !this.holdsState && !this.sequences.isKept;
  }

  /**
   * What the meaning of a text depends on beside the text: the same in sessions with the same settings.
   * @returns undefined when that is not known
   */
  get context(): string | undefined {
    return this.unsettled || this.suspected ? undefined : contextOf(this.settings);
  }

  /** With such a search path, what is created is temporary without a word of it. */
  get #makesTemporary(): boolean {
    return PG_TEMP.test(this.settings.get('search_path') ?? '');
  }

  #addCustom(names: readonly string[]): void {
    if (this.#custom.size <= MAX_CUSTOM_SETTINGS && names.some((name) => !this.#custom.has(name))) {
      this.#custom = new Set([...this.#custom, ...names]);
    }
  }

  statementSeen(traits: SqlTraits): void {
    if (traits.changesSettings) this.unsettled = true;
    const leavesState = traits.leavesState === 'yes';
    if (leavesState) this.suspected = true;
    if (leavesState && traits.resets && this.#startup.size > 0) this.restores = true;
    this.#addCustom(traits.customSettings);
    if (traits.touchesAdvisoryLocks && leavesState) this.#mayLockUnseen = true;
    if (traits.setsUnknownSettings || this.#custom.size > MAX_CUSTOM_SETTINGS) this.keep('setting');
    if (traits.touchesAdvisoryLocks || (traits.deallocates && this.#mayLockUnseen)) {
      this.keep('advisory_lock');
      this.lockCheckDue = true;
    }
  }

  #has(reason: PinReason): boolean {
    return this.#reasons?.has(reason) ?? false;
  }

  /** The session has to stay where it is until `DISCARD ALL`. */
  keep(reason: PinReason): void {
    if (this.#has(reason)) return;
    this.#reasons ??= new Set();
    this.#reasons.add(reason);
    this.#tell(reason, true);
  }

  #drop(reason: PinReason): void {
    if (this.#reasons?.delete(reason)) this.#tell(reason, false);
  }

  /** The session is over. */
  end(): void {
    for (const reason of this.reasons) this.#drop(reason);
    this.sequences.lost();
  }

  /** A setting that the server reports has changed, by whatever way: there may be others. */
  parameterChanged(parameter: string, value: string): void {
    if (this.settings.get(parameter.toLowerCase()) === value) return;
    this.suspected = true;
    this.unsettled = true;
  }

  probed({ settings, held }: SessionFacts): void {
    this.#drop('unknown');
    this.inForce = settings;
    const missing = [...this.#startup].filter(([name]) => !settings.has(name));
    this.settings = missing.length === 0 ? settings : new Map([...settings, ...missing]);
    for (const kind of PROBED) {
      if (held.has(kind) || (kind === 'temp' && this.#makesTemporary)) this.keep(kind);
      else this.#drop(kind);
    }
  }

  /** What could not be asked may be there. */
  probeFailed(): void {
    this.keep('unknown');
    this.suspected = true;
  }

  locksHeld(held: boolean): void {
    if (!held && !this.lockCheckDue) this.#drop('advisory_lock');
  }

  /** `DISCARD ALL` has run. */
  discarded(): void {
    for (const reason of this.reasons) if (reason !== 'session') this.#drop(reason);
    this.sequences.lost();
    this.lockCheckDue = false;
    this.settings = this.#startup;
    this.inForce = NO_SETTINGS;
    this.suspected = true;
  }
}

const PG_TEMP = /\bpg_temp\b/i;
/** Settings that change what a text does to nobody. */
const MEANINGLESS: ReadonlySet<string> = new Set(['application_name']);
const contexts = new WeakMap<Settings, string>();

function contextOf(settings: Settings): string {
  let context = contexts.get(settings);
  if (context === undefined) {
    const entries = [...settings].filter(([name]) => !MEANINGLESS.has(name)).sort();
    context = entries.length === 0 ? '' : JSON.stringify(entries);
    contexts.set(settings, context);
  }
  return context;
}
