/**
 * A cheap look at a statement's text, on the safe side: a trait found where there is none costs a question to the server,
 * one overlooked would let a session's state be seen by another. It decides nothing about rights.
 */
export interface TextTraits {
  /** It may leave behind state that outlives the transaction, or end such state. */
  readonly touchesState: boolean;
  /** It may take or release session advisory locks. */
  readonly touchesAdvisoryLocks: boolean;
  /** It asks for what a sequence last gave to this session. */
  readonly readsSequenceState: boolean;
  /** It may make sequences move. */
  readonly movesSequences: boolean;
  /** It mentions backend process ids. */
  readonly mentionsPids: boolean;
  /** It changes what new sessions of a role or database start with. */
  readonly changesDefaults: boolean;
}

/** The same object for every text without a trait. */
export const PLAIN: TextTraits = {
  touchesState: false,
  touchesAdvisoryLocks: false,
  readsSequenceState: false,
  movesSequences: false,
  mentionsPids: false,
  changesDefaults: false,
};

/** Words one of which stands in every text that has a trait; most texts have none. */
const ANY_TRAIT =
  /\b(?:set_config|setseed|reset|discard|deallocate|prepare|execute|declare|listen|unlisten|close|load|temp|temporary|pg_temp\w*|hold|pg_(?:try_)?advisory\w*|currval|lastval|nextval|setval|insert|copy|merge|pg_backend_pid|pg_(?:cancel|terminate)_backend|role|user|database)\b|(?:^|;|\*\/|\n|begin)\s*(?:set|do|call|drop)\b/i;

/** Where a statement can begin: at the start, behind a semicolon or a comment, in a block. */
const BEGINNING = String.raw`(?:^|;|\*\/|--[^\n]*\n|\bbegin\b|\bthen\b|\$)\s*`;
const STATE = new RegExp(
  `${BEGINNING}(?:set|reset|discard|deallocate|prepare|declare|listen|unlisten|close|load|do|call)\\b|\\b(?:set_config|setseed|temp|temporary|pg_temp\\w*|hold)\\b`,
  'i',
);
/** `set_config(…, true)` ends with the transaction. */
const LOCAL_SET_CONFIG = /\bset_config\s*\([^()]*,\s*true\s*\)/gi;
const LOCAL_SET = new RegExp(`${BEGINNING}set\\s+(?:local|transaction|constraints)\\b`, 'gi');
const ADVISORY = /\bpg_(?:try_)?advisory_(?!xact_)/i;
const SEQUENCE_READ = /\b(?:currval|lastval)\b/i;
const SEQUENCE_MOVE = /\b(?:insert|copy|merge|nextval|setval|do|call)\b/i;
const PIDS = /\bpg_(?:backend_pid|cancel_backend|terminate_backend)\b/i;
const DEFAULTS = /\balter\s+(?:role|user|database)\b/i;

/** @param text in any encoding that has ASCII in its place, e.g. UTF-8 bytes read as Latin-1 */
export function traitsOf(text: string): TextTraits {
  if (!ANY_TRAIT.test(text)) return PLAIN;
  const lasting = text.replace(LOCAL_SET_CONFIG, '').replace(LOCAL_SET, ';');
  return {
    touchesState: STATE.test(lasting),
    touchesAdvisoryLocks: ADVISORY.test(text),
    readsSequenceState: SEQUENCE_READ.test(text),
    movesSequences: SEQUENCE_MOVE.test(text),
    mentionsPids: PIDS.test(text),
    changesDefaults: DEFAULTS.test(text),
  };
}

/** For a text of which only the beginning is at hand. */
export const UNKNOWN_TRAITS: TextTraits = { ...PLAIN, touchesState: true, movesSequences: true };

const DEALLOCATE_ONE = /^\s*deallocate\s+(?:prepare\s+)?(?:"((?:[^"]|"")+)"|(?!all\b)([a-z_\x80-\xff][\w$\x80-\xff]*))\s*;?\s*$/i;

/** @returns the name in a text that is one `DEALLOCATE name`, as Postgres would fold it */
export function deallocatedName(text: string): string | undefined {
  const match = DEALLOCATE_ONE.exec(text);
  if (match === null) return undefined;
  return match[1]?.replaceAll('""', '"') ?? match[2]?.toLowerCase();
}
