import { isQuotedIdentifier } from '../scanner.ts';
import { changeCode } from './outside-literals.ts';
import {
  beginning,
  changesDefaults,
  customSettings,
  isFollowed,
  type LeavesState,
  mayChangeSession,
  setsUnnamed,
  withoutLocalSettings,
} from './session-state.ts';

/**
 * A cheap look at a statement's text, on the safe side: a trait found where there is none costs a question to the server,
 * one overlooked would let a session's state be seen by another. It decides nothing about rights.
 */
export interface SqlTraits {
  /** `no` is for a closer look: see side-effects.ts. */
  readonly leavesState: LeavesState;
  /** It may change settings, if only up to the end of the transaction. */
  readonly changesSettings: boolean;
  /** Settings of the client's own that it may set, e.g. `my.own`, in lower case: the server does not list them. */
  readonly customSettings: readonly string[];
  /** It may set settings whose names are not in the text, or more than are worth following. */
  readonly setsUnnamed: boolean;
  /** It may take or release session advisory locks. */
  readonly touchesAdvisoryLocks: boolean;
  /** It has the name of a function that tells what a sequence last gave to this session. */
  readonly readsSequenceState: boolean;
  /** It calls one. */
  readonly callsSequenceRead: boolean;
  /** It may make sequences move. */
  readonly movesSequences: boolean;
  /** It inserts rows of which it shows nothing. */
  readonly insertsUnseen: boolean;
  /** It sets where random numbers begin. */
  readonly seedsRandom: boolean;
  /** It speaks of prepared statements by name, or lists them. */
  readonly namesPrepared: boolean;
  readonly listsPrepared: boolean;
  /** It takes settings back to what the session started with. */
  readonly resets: boolean;
  /** It is prepared under a name and cannot be prepared again elsewhere. */
  readonly staysPrepared: boolean;
  /** It takes prepared statements away by name. */
  readonly deallocates: boolean;
  /** It may take all of them away. */
  readonly deallocatesAll: boolean;
  /** It mentions backend process ids. */
  readonly mentionsPids: boolean;
  /** It changes what new sessions of a role or database start with. */
  readonly changesDefaults: boolean;
  /** Its one row is the search path. */
  readonly showsSearchPath: boolean;
  /** More of it is to come, which may have other traits. */
  readonly goesOn: boolean;
}

/** The same object for every text without a trait. */
export const NO_TRAITS: SqlTraits = {
  leavesState: 'unknown',
  changesSettings: false,
  customSettings: [],
  setsUnnamed: false,
  touchesAdvisoryLocks: false,
  readsSequenceState: false,
  callsSequenceRead: false,
  movesSequences: false,
  insertsUnseen: false,
  seedsRandom: false,
  namesPrepared: false,
  listsPrepared: false,
  resets: false,
  staysPrepared: false,
  deallocates: false,
  deallocatesAll: false,
  mentionsPids: false,
  changesDefaults: false,
  showsSearchPath: false,
  goesOn: false,
};

/** Words one of which stands in every text that has a trait; most texts have none. */
const ANY_TRAIT =
  /\b(?:set_config|setseed|reset|discard|deallocate|prepare|execute|declare|listen|unlisten|close|load|temp|temporary|pg_temp\w*|hold|pg_(?:try_)?advisory\w*|currval|lastval|nextval|setval|insert|copy|merge|pg_backend_pid|pg_(?:cancel|terminate)_backend|pg_stat_activity|pg_prepared_statements?|pg_settings|set_limit|default|role|user|database)\b|\bu&"|\b(?:set|do|call|drop|show)\b(?<=(?:^|;|\*\/|[\n\r]|begin)\s*\w+)/i;

const ADVISORY = /\bpg_(?:try_)?advisory_(?!xact_)/i;
const SEQUENCE_READ = /\b(?:currval|lastval)\b/i;
/** Also in a string, which may be run. */
const SEQUENCE_READ_CALL = /\b(?:currval|lastval)"?\s*(?:\(|\/\*|--)/i;
const SEQUENCE_MOVE = /\b(?:insert|copy|merge|nextval|setval|do|call)\b/i;
const UPDATE = /\bupdate\b/i;
const DEFAULT = /\bdefault\b/i;
const INSERT = /\binsert\b/i;
const RETURNING = /\breturning\b/i;
const SEED = new RegExp(
  String.raw`\bsetseed\b|\bset_config\s*\(\s*'seed'|${beginning('set', String.raw`\s+(?:session\s+|local\s+)?"?seed"?\s*(?:=|to\b)`)}`,
  'i',
);
const PREPARED_LIST = /\bpg_prepared_statements?\b/i;
const PREPARED = new RegExp(String.raw`${beginning('execute')}|\bas\s+execute\b|\bpg_prepared_statements?\b`, 'i');
const EXPLAIN = new RegExp(beginning('explain'), 'i');
const EXECUTE = /\bexecute\b/i;
const RESETS = /\b(?:reset|discard|default)\b/i;
const DEALLOCATES = /\bdeallocate\b/i;
const DEALLOCATE_OR_DISCARD = /\b(?:deallocate|discard)\b/i;
const ALL = /\ball\b/i;
const PIDS = /\bpg_(?:backend_pid|cancel_backend|terminate_backend|stat_activity)\b/i;
const SHOWS_SEARCH_PATH = /^\s*show\s+(?:search_path|"search_path")\s*(?:;\s*)?$/i;

/** @param original text in any encoding that has ASCII in its place, e.g. UTF-8 bytes read as Latin-1 */
export function traitsOf(original: string): SqlTraits {
  if (!ANY_TRAIT.test(original)) return NO_TRAITS;
  const text = ESCAPED_NAME.test(original) ? withNamesUnescaped(original) : original;
  const lasting = withoutLocalSettings(text);
  const custom = customSettings(lasting);
  return {
    leavesState: mayChangeSession(lasting) ? 'yes' : 'unknown',
    changesSettings: mayChangeSession(text),
    customSettings: custom ?? [],
    setsUnnamed: custom === undefined || setsUnnamed(lasting),
    touchesAdvisoryLocks: ADVISORY.test(text),
    readsSequenceState: SEQUENCE_READ.test(text),
    callsSequenceRead: SEQUENCE_READ_CALL.test(text),
    movesSequences: SEQUENCE_MOVE.test(text) || isFollowed(text, UPDATE, DEFAULT),
    insertsUnseen: INSERT.test(text) && !RETURNING.test(original),
    seedsRandom: SEED.test(text),
    namesPrepared: PREPARED.test(text) || isFollowed(text, EXPLAIN, EXECUTE),
    listsPrepared: PREPARED_LIST.test(text),
    resets: RESETS.test(text),
    staysPrepared: false,
    deallocates: DEALLOCATES.test(text),
    deallocatesAll: isFollowed(original, DEALLOCATE_OR_DISCARD, ALL),
    mentionsPids: PIDS.test(text),
    changesDefaults: changesDefaults(text),
    showsSearchPath: SHOWS_SEARCH_PATH.test(original),
    goesOn: false,
  };
}

const ESCAPED_NAME = /\bu&"/i;
/** Behind whichever character UESCAPE makes the one for it. */
const ESCAPE = /[^\s0-9a-f+'"](?:\+([0-9a-f]{6})|([0-9a-f]{4}))/gi;

/** The text, and behind it the same with what may be escapes in names (`U&"set\005fconfig"`) read. */
function withNamesUnescaped(text: string): string {
  const read = text.replace(ESCAPE, (written, long?: string, short?: string) => {
    const code = Number.parseInt(long ?? short ?? '', 16);
    return code < 0x80 ? String.fromCharCode(code) : written;
  });
  return `${text};${read}`;
}

/** For a text of which only the beginning is at hand: what can be asked of the server afterwards is taken for granted. */
export function traitsOfBeginning(text: string): SqlTraits {
  const traits = traitsOf(text);
  return {
    ...traits,
    leavesState: 'yes',
    changesSettings: true,
    resets: traits.leavesState === 'yes' && traits.resets,
    movesSequences: true,
    mentionsPids: false,
    showsSearchPath: false,
    goesOn: true,
  };
}

const DEALLOCATED = /\bdeallocate\s+(?:prepare\s+)?(?:"((?:[^"]|"")+)"|(?!all\b|prepare\b)([a-z_\x80-\xff][\w$\x80-\xff]*))/gi;

/** The names in a text's `DEALLOCATE name`, in order and as Postgres would fold them. */
export function deallocatedNames(text: string): string[] {
  const names: string[] = [];
  const collect = (code: string) => {
    for (const [, quoted, plain] of code.matchAll(DEALLOCATED)) names.push(quoted?.replaceAll('""', '"') ?? plain?.toLowerCase() ?? '');
    return code;
  };
  changeCode(text, collect, (_, kind) => isQuotedIdentifier(kind));
  return names;
}
