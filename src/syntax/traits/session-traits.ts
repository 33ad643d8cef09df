import { isExplain } from '../leading-keywords.ts';
import { eachStatement } from '../split-statements.ts';
import type { LexerOptions } from '../tokens/scanner.ts';
import {
  atStatementStart,
  type CustomOptions,
  changesDefaults,
  customOptions,
  customSettings,
  isFollowed,
  type LeavesState,
  mayChangeSession,
  NO_OPTIONS,
  setsUnknownSettings,
  withoutLocalSettings,
} from './session-state.ts';

/**
 * What a cheap look at a statement's text finds. It errs on the safe side: a trait that is found wrongly costs a state probe, but
 * one that is missed would let another session see this session's state. Access control does not depend on it.
 */
export interface SessionTraits {
  /** Never `no`: only the closer look in side-effects.ts can tell that. */
  readonly leavesState: LeavesState;
  /** The text may change settings, even if only until the end of the transaction. */
  readonly changesSettings: boolean;
  /** Customized options that the text may set (`my.own`), in lower case. They are named here because the server does not list them. */
  readonly customSettings: readonly string[];
  /** The text may change settings whose names it does not show, or too many of them. */
  readonly setsUnknownSettings: boolean;
  /** Customized options that may exist in the session afterwards, whether or not they are still set. */
  readonly customOptions: CustomOptions;
  /** The text may take or release session-level advisory locks. */
  readonly touchesAdvisoryLocks: boolean;
  /** The text mentions currval or lastval, which return the last value that a sequence gave to this session. */
  readonly readsSequenceState: boolean;
  /** The text may call one of them. */
  readonly callsSequenceFunction: boolean;
  /** The text may advance a sequence. */
  readonly advancesSequences: boolean;
  /** The text inserts rows and returns none of them. */
  readonly insertsWithoutReturning: boolean;
  /** The text sets the seed of random(). */
  readonly seedsRandom: boolean;
  /** The text names prepared statements, or lists them. */
  readonly namesPrepared: boolean;
  /** The text reads the view pg_prepared_statements. */
  readonly listsPrepared: boolean;
  /** The text may reset settings to the values with which the session started. */
  readonly resets: boolean;
  /** The statement is prepared under a name and cannot be prepared again on another backend. */
  readonly cannotBePreparedAgain: boolean;
  /** The text deallocates prepared statements by name. */
  readonly deallocates: boolean;
  /** The text may deallocate all prepared statements. */
  readonly deallocatesAll: boolean;
  /** The text mentions process IDs of backends. */
  readonly mentionsPids: boolean;
  /** The text changes the settings with which new sessions of a role or database start. */
  readonly changesDefaults: boolean;
  /** The text is SHOW search_path, or a single EXPLAIN, in whose rows there are names that are not the client's. */
  readonly shows: 'search_path' | 'plan' | undefined;
  /** The text is only the beginning of a statement; the rest may have other traits. */
  readonly isTruncated: boolean;
}

/** All texts without a trait share this object. */
export const NO_TRAITS: SessionTraits = {
  leavesState: 'unknown',
  changesSettings: false,
  customSettings: [],
  setsUnknownSettings: false,
  customOptions: NO_OPTIONS,
  touchesAdvisoryLocks: false,
  readsSequenceState: false,
  callsSequenceFunction: false,
  advancesSequences: false,
  insertsWithoutReturning: false,
  seedsRandom: false,
  namesPrepared: false,
  listsPrepared: false,
  resets: false,
  cannotBePreparedAgain: false,
  deallocates: false,
  deallocatesAll: false,
  mentionsPids: false,
  changesDefaults: false,
  shows: undefined,
  isTruncated: false,
};

/** Every text with a trait matches this pattern. Most texts do not, and need no other test. */
const ANY_TRAIT =
  /\b(?:set_config|setseed|reset|discard|deallocate|prepare|execute|declare|listen|unlisten|close|load|temp|temporary|pg_temp\w*|hold|pg_(?:try_)?advisory\w*|currval|lastval|nextval|setval|insert|copy|merge|pg_backend_pid|pg_(?:cancel|terminate)_backend|pg_stat_activity|pg_prepared_statements?|pg_settings|set_limit|default|role|user|database)\b|\bu&"|\b(?:set|do|call|drop|show|explain)\b(?<=(?:^|;|\*\/|[\n\r]|begin)\s*\w+)/i;

const ADVISORY = /\bpg_(?:try_)?advisory_(?!xact_)/i;
const SEQUENCE_READ = /\b(?:currval|lastval)\b/i;
/** A call in a string counts too, because EXECUTE may run it. */
const SEQUENCE_READ_CALL = /\b(?:currval|lastval)"?\s*(?:\(|\/\*|--)/i;
const SEQUENCE_MOVE = /\b(?:insert|copy|merge|nextval|setval|do|call)\b/i;
const UPDATE = /\bupdate\b/i;
const DEFAULT = /\bdefault\b/i;
const INSERT = /\binsert\b/i;
const RETURNING = /\breturning\b/i;
const SEED = new RegExp(
  String.raw`\bsetseed\b|\bset_config\s*\(\s*'seed'|${atStatementStart('set', String.raw`\s+(?:session\s+|local\s+)?"?seed"?\s*(?:=|to\b)`)}`,
  'i',
);
const PREPARED_LIST = /\bpg_prepared_statements?\b/i;
const PREPARED = new RegExp(String.raw`${atStatementStart('execute')}|\bas\s+execute\b|\bpg_prepared_statements?\b`, 'i');
const EXPLAIN = new RegExp(atStatementStart('explain'), 'i');
const EXECUTE = /\bexecute\b/i;
const RESETS = /\b(?:reset|discard|default)\b/i;
const DEALLOCATES = /\bdeallocate\b/i;
const DEALLOCATE_OR_DISCARD = /\b(?:deallocate|discard)\b/i;
const ALL = /\ball\b/i;
const PIDS = /\bpg_(?:backend_pid|cancel_backend|terminate_backend|stat_activity)\b/i;
const SHOWS_SEARCH_PATH = /^\s*show\s+(?:search_path|"search_path")\s*(?:;\s*)?$/i;

/**
 * @param original text in any encoding that contains ASCII, for example UTF-8 bytes decoded as Latin-1
 * @param options how the server reads it. Only EXPLAIN is read by them: the patterns do not depend on where strings end
 */
export function sessionTraitsOf(original: string, options?: LexerOptions): SessionTraits {
  if (!ANY_TRAIT.test(original)) return NO_TRAITS;
  const text = ESCAPED_NAME.test(original) ? withNamesUnescaped(original) : original;
  const lasting = withoutLocalSettings(text);
  const custom = customSettings(lasting);
  return {
    leavesState: mayChangeSession(lasting) ? 'yes' : 'unknown',
    changesSettings: mayChangeSession(text),
    customSettings: custom ?? [],
    setsUnknownSettings: custom === undefined || setsUnknownSettings(lasting),
    customOptions: customOptions(text),
    touchesAdvisoryLocks: ADVISORY.test(text),
    readsSequenceState: SEQUENCE_READ.test(text),
    callsSequenceFunction: SEQUENCE_READ_CALL.test(text),
    advancesSequences: SEQUENCE_MOVE.test(text) || isFollowed(text, UPDATE, DEFAULT),
    insertsWithoutReturning: INSERT.test(text) && !RETURNING.test(original),
    seedsRandom: SEED.test(text),
    namesPrepared: PREPARED.test(text) || isFollowed(text, EXPLAIN, EXECUTE),
    listsPrepared: PREPARED_LIST.test(text),
    resets: RESETS.test(text),
    cannotBePreparedAgain: false,
    deallocates: DEALLOCATES.test(text),
    deallocatesAll: isFollowed(original, DEALLOCATE_OR_DISCARD, ALL),
    mentionsPids: PIDS.test(text),
    changesDefaults: changesDefaults(text),
    shows: SHOWS_SEARCH_PATH.test(original) ? 'search_path' : EXPLAIN.test(text) && isOneExplain(original, options) ? 'plan' : undefined,
    isTruncated: false,
  };
}

/** A longer text is not read, because that would block the event loop. */
const EXPLAIN_MAX_CHARACTERS = 65_536;

function isOneExplain(text: string, options: LexerOptions | undefined): boolean {
  if (text.length > EXPLAIN_MAX_CHARACTERS) return false;
  const statements = [...eachStatement(text, options)].filter((statement) => statement !== undefined);
  return statements.length === 1 && isExplain(text);
}

const ESCAPED_NAME = /\bu&"/i;
/** A Unicode escape, with any escape character that a UESCAPE clause may choose. */
const ESCAPE = /[^\s0-9a-f+'"](?:\+([0-9a-f]{6})|([0-9a-f]{4}))/gi;

/** Appends a copy of the text in which the Unicode escapes of identifiers (`U&"set\005fconfig"`) are decoded. */
function withNamesUnescaped(text: string): string {
  const read = text.replace(ESCAPE, (written, long?: string, short?: string) => {
    const code = Number.parseInt(long ?? short ?? '', 16);
    return code < 0x80 ? String.fromCharCode(code) : written;
  });
  return `${text};${read}`;
}

/** The traits of a text of which only the beginning is known. It is assumed to have the traits about which the server can be asked later. */
export function traitsOfBeginning(text: string): SessionTraits {
  const traits = sessionTraitsOf(text);
  return {
    ...traits,
    leavesState: 'yes',
    changesSettings: true,
    resets: traits.leavesState === 'yes' && traits.resets,
    advancesSequences: true,
    mentionsPids: false,
    shows: undefined,
    isTruncated: true,
  };
}
