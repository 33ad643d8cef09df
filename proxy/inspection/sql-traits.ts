import { isQuotedIdentifier } from '../../src/syntax/scanner.ts';
import { changeCode } from './outside-literals.ts';

/** A session with more of the client's own settings than that stays on its backend. */
export const MAX_CUSTOM_SETTINGS = 100;
const MAX_CUSTOM_MENTIONS = 1_000;

/**
 * A cheap look at a statement's text, on the safe side: a trait found where there is none costs a question to the server,
 * one overlooked would let a session's state be seen by another. It decides nothing about rights.
 */
export interface SqlTraits {
  /** It may leave behind state that outlives the transaction, or end such state. */
  readonly touchesState: boolean;
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
  touchesState: false,
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
  /\b(?:set_config|setseed|reset|discard|deallocate|prepare|execute|declare|listen|unlisten|close|load|temp|temporary|pg_temp\w*|hold|pg_(?:try_)?advisory\w*|currval|lastval|nextval|setval|insert|copy|merge|pg_backend_pid|pg_(?:cancel|terminate)_backend|pg_stat_activity|pg_prepared_statements?|pg_settings|set_limit|default|role|user|database)\b|\b(?:set|do|call|drop|show)\b(?<=(?:^|;|\*\/|[\n\r]|begin)\s*\w+)/i;

/**
 * A word at the beginning of a statement: at the start, behind a semicolon or a comment, in a block. What is before it is
 * looked at from the word: the other way round, much white space would be read again and again.
 * @param follower what has to follow: it is looked at first, which costs less
 */
const beginning = (word: string, follower = '') =>
  String.raw`\b(?:${word})\b(?=${follower})(?<=(?:^|;|\*\/|--[^\n\r]*[\n\r]|\bbegin\b|\bthen\b|\$)\s*\w+)${follower}`;
const STATE = new RegExp(
  String.raw`${beginning('set|reset|discard|deallocate|prepare|declare|listen|unlisten|close|load|do|call')}|\b(?:set_config|set_limit|setseed|temp|temporary|pg_temp\w*|hold)\b|\bupdate\s+(?:only\s+)?(?:\"?pg_catalog\"?\s*\.\s*)?\"?pg_settings\b`,
  'i',
);
/** `set_config(…, true)` ends with the transaction. */
const LOCAL_SET_CONFIG = /\bset_config\s*\([^()]*,\s*true\s*\)/gi;
const LOCAL_SET = new RegExp(beginning('set', String.raw`\s+(?:local|transaction|constraints)\b`), 'gi');
const CUSTOM_NAME = String.raw`"?[a-z_][\w$]*"?(?:\s*\.\s*"?[\w$]+"?)+`;
const CUSTOM_SET = new RegExp(String.raw`\bset\s+(?:session\s+)?(${CUSTOM_NAME})\s*(?:=|to\b)`, 'gi');
const CUSTOM_SET_CONFIG = /\bset_config\s*\(\s*'([a-z_][\w$]*\.[\w$.]+)'/gi;
/** A name that is put together, or one that is not read above: in other letters, or with a comment beside it. */
const SETS_UNNAMED = new RegExp(
  String.raw`\bset_config\s*\((?!\s*'[\w$.]+'\s*,)|${beginning('set')}(?:\s+(?:session\s+)?(?!${CUSTOM_NAME}\s*(?:=|to\b))[^\s=;.]+\s*(?:\.|\/\*|--)|(?:\s+session)?\s*(?:\/\*|--))`,
  'i',
);
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
const DEFAULTS = /\balter\s+(?:role|user|database)\b/i;

/** @param text in any encoding that has ASCII in its place, e.g. UTF-8 bytes read as Latin-1 */
export function traitsOf(text: string): SqlTraits {
  if (!ANY_TRAIT.test(text)) return NO_TRAITS;
  const lasting = text.replace(LOCAL_SET_CONFIG, '').replace(LOCAL_SET, ';');
  const custom = customSettings(lasting);
  return {
    touchesState: STATE.test(lasting),
    changesSettings: STATE.test(text),
    customSettings: custom ?? [],
    setsUnnamed: custom === undefined || SETS_UNNAMED.test(lasting),
    touchesAdvisoryLocks: ADVISORY.test(text),
    readsSequenceState: SEQUENCE_READ.test(text),
    callsSequenceRead: SEQUENCE_READ_CALL.test(text),
    movesSequences: SEQUENCE_MOVE.test(text) || isFollowed(text, UPDATE, DEFAULT),
    insertsUnseen: INSERT.test(text) && !RETURNING.test(text),
    seedsRandom: SEED.test(text),
    namesPrepared: PREPARED.test(text) || isFollowed(text, EXPLAIN, EXECUTE),
    listsPrepared: PREPARED_LIST.test(text),
    resets: RESETS.test(text),
    staysPrepared: false,
    deallocates: DEALLOCATES.test(text),
    deallocatesAll: isFollowed(text, DEALLOCATE_OR_DISCARD, ALL),
    mentionsPids: PIDS.test(text),
    changesDefaults: DEFAULTS.test(text),
    showsSearchPath: SHOWS_SEARCH_PATH.test(text),
    goesOn: false,
  };
}

/** For a text of which only the beginning is at hand: what can be asked of the server afterwards is taken for granted. */
export function traitsOfBeginning(text: string): SqlTraits {
  const traits = traitsOf(text);
  return {
    ...traits,
    touchesState: true,
    changesSettings: true,
    resets: traits.touchesState && traits.resets,
    movesSequences: true,
    mentionsPids: false,
    showsSearchPath: false,
    goesOn: true,
  };
}

/** Whether a second word stands behind a first one, however far: in one pattern, each first one would be tried. */
export function isFollowed(text: string, first: RegExp, second: RegExp): boolean {
  const at = text.search(first);
  return at >= 0 && second.test(text.slice(at));
}

/** `'now'::timestamptz` and the like are made into values when a statement is prepared. */
const TIME_OF_PREPARING = /'\s*(?:now|today|tomorrow|yesterday)\b/i;
const QUERY = /^\s*(?:select|insert|update|delete|merge|values|with|table)\b/i;

/** Whether the same text, prepared again in the same settings, is the same statement. */
export function staysTheSame(text: string): boolean {
  return !TIME_OF_PREPARING.test(text);
}

/** Whether a text may be prepared behind the client's back. */
export function isPreparable(text: string, traits: SqlTraits): boolean {
  const { touchesState, namesPrepared, listsPrepared, mentionsPids } = traits;
  return !touchesState && !namesPrepared && !listsPrepared && !mentionsPids && QUERY.test(text) && staysTheSame(text);
}

/** @returns undefined when there are more than are worth following, or more mentions of them than are worth reading */
function customSettings(text: string): string[] | undefined {
  const names = new Set<string>();
  let mentions = 0;
  for (const pattern of [CUSTOM_SET, CUSTOM_SET_CONFIG]) {
    for (const [, name = ''] of text.matchAll(pattern)) {
      names.add(name.replace(/[\s"]+/g, '').toLowerCase());
      mentions += 1;
      if (names.size > MAX_CUSTOM_SETTINGS || mentions > MAX_CUSTOM_MENTIONS) return undefined;
    }
  }
  return [...names];
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
