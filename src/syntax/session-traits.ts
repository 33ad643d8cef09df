import { Code, contentOf, isString, Lexer, type LexerOptions, lowerCase, Token } from './scanner.ts';
import { eachStatement, isExplain } from './statements.ts';

/**
 * Whether a statement leaves state in its session that outlives the transaction, or ends such state: `yes` if its text
 * mentions that, `no` if all of it is known to be harmless. The wire door asks the server after a `yes`. The HTTP door
 * resets the session unless the answer is `no`.
 */
export type LeavesState = 'yes' | 'no' | 'unknown';

/** A session with more customized options (`my.own`) than this stays on its backend. */
export const MAX_CUSTOM_SETTINGS = 100;
const MAX_CUSTOM_MENTIONS = 1_000;

/**
 * Names of customized options (`my.own`), in lower case. Once set, even locally, an option exists in its session for good: it is empty
 * where a new session has NULL. A set is never changed, so identical sets are known to be equal.
 */
export type CustomOptions = ReadonlySet<string>;

export const NO_OPTIONS: CustomOptions = new Set();
/** Stands for options whose names are not known. */
export const UNNAMED_OPTIONS = '*';

/** Whether all of `some` are among `others`. */
export function areAmong(some: CustomOptions, others: CustomOptions): boolean {
  if (some === others) return true;
  if (some.size > others.size) return false;
  for (const name of some) if (!others.has(name)) return false;
  return true;
}

export function areSame(some: CustomOptions, others: CustomOptions): boolean {
  return some.size === others.size && areAmong(some, others);
}

/** The customized options among settings: their names have two parts or more. */
export function optionsAmong(settings: Iterable<string>): CustomOptions {
  const names = [...settings].filter((name) => name.includes('.'));
  return names.length === 0 ? NO_OPTIONS : new Set(names.map((name) => name.toLowerCase()));
}

/** @returns `some` itself if there is nothing to add */
export function withOptions(some: CustomOptions, others: CustomOptions): CustomOptions {
  if (areAmong(others, some)) return some;
  const names = new Set([...some, ...others]);
  return names.size <= MAX_CUSTOM_SETTINGS ? names : new Set([...[...names].slice(0, MAX_CUSTOM_SETTINGS), UNNAMED_OPTIONS]);
}

/**
 * A pattern for a keyword with which a statement begins: at the start, after a semicolon or a comment, in a block. It finds the
 * keyword first and then looks back, because a pattern that begins with white space would read long white space repeatedly.
 * @param follower pattern of what has to follow; it is tested first, because that costs less
 */
const atStatementStart = (keyword: string, follower = '') =>
  String.raw`\b(?:${keyword})\b(?=${follower})(?<=(?:^|;|\*\/|--[^\n\r]*[\n\r]|\bbegin\b|\bthen\b|\$)\s*\w+)${follower}`;

const STATE = new RegExp(
  String.raw`${atStatementStart('set|reset|discard|deallocate|prepare|declare|listen|unlisten|close|load|do|call')}|\b(?:set_config|set_limit|setseed|temp|temporary|pg_temp\w*|hold)\b`,
  'i',
);

/** @param text the result of {@link withoutLocalSettings}, to find what outlives the transaction; else the whole text */
function mayChangeSession(text: string): boolean {
  return STATE.test(text) || updatesSettings(text);
}
const SETTINGS = /\bpg_settings\b/i;

/** An UPDATE of the view pg_settings is a SET. @see https://www.postgresql.org/docs/current/view-pg-settings.html */
export function updatesSettings(text: string): boolean {
  return isFollowed(text, UPDATE, SETTINGS);
}

/** One character, string or quoted identifier in a function's arguments. It matches only where its end is certain. */
const ARGUMENT_PART = String.raw`(?:[^()'"$\\/-]|'[^'\\]*'|"[^"]*"|\$\d+\b(?!\$)|-(?!-)|\/(?!\*))`;
/** A call whose first argument begins with two quotes is in a string itself, where each quote is doubled: its strings end elsewhere. */
const LOCAL_CALL = String.raw`\bset_config(?=\s*\((?!\s*'')(?:${ARGUMENT_PART}|\(${ARGUMENT_PART}{0,500}\)){0,2000}?,\s*true\s*\))`;
const LOCAL_END = /,\s*true\s*\)/i;
const LOCAL_CALL_HERE = new RegExp(LOCAL_CALL, 'iy');
const LOCAL_CALLS = new RegExp(LOCAL_CALL, 'gi');
/** `SET local.x = 1` and `SET transaction$x.y = 1` set customized options, which outlive the transaction. */
const LOCAL = String.raw`\s+(?:local|transaction|constraints)(?![\w$\u0080-\uffff]|\s*(?:\.|\/\*|--))`;
const LOCAL_HERE = new RegExp(LOCAL, 'iy');
const LOCAL_SETS = new RegExp(atStatementStart('set', LOCAL), 'gi');

/** Whether the effect of the set_config call that begins here ends with the transaction, as with `set_config(…, true)`. */
export function endsWithTransaction(text: string, start: number): boolean {
  LOCAL_CALL_HERE.lastIndex = start;
  return LOCAL_CALL_HERE.test(text);
}

/** Whether the SET that ends here is SET LOCAL, SET TRANSACTION or SET CONSTRAINTS, whose effect ends with the transaction. */
export function setsLocally(text: string, end: number): boolean {
  LOCAL_HERE.lastIndex = end;
  return LOCAL_HERE.test(text);
}

/**
 * Removes the keywords and function names that change a setting only until the end of the transaction. If a string contains what
 * looks like such a call, it loses only the function's name, and the code after it remains.
 */
function withoutLocalSettings(text: string): string {
  const unlessLocal = LOCAL_END.test(text) ? text.replace(LOCAL_CALLS, '') : text;
  return unlessLocal.replace(LOCAL_SETS, ';');
}

const CUSTOM_NAME = String.raw`"?[a-z_][\w$]*"?(?:\s*\.\s*"?[\w$]+"?)+`;
const CUSTOM_SET = new RegExp(String.raw`\bset\s+(?:(?:session|local)\s+)?(${CUSTOM_NAME})\s*(?:=|to\b)`, 'gi');
const CUSTOM_RESET = new RegExp(String.raw`\breset\s+(${CUSTOM_NAME})`, 'gi');
const CUSTOM_SET_CONFIG = /\bset_config\s*\(\s*'([a-z_][\w$]*\.[\w$.]+)'/gi;
/**
 * A setting's name that is an expression, or that the patterns above do not read: it has other letters, or a comment beside it. So
 * has a name of `set_config` that is quoted, or followed by a comment.
 */
const UNKNOWN_SETTING = new RegExp(
  String.raw`\bset_config\b(?!\s*\(\s*'[\w$.]+'\s*,)|\bu&"[^"]*\\|${atStatementStart('set')}(?:\s+(?:(?:session|local)\s+)?(?!${CUSTOM_NAME}\s*(?:=|to\b))[^\s=;.]+\s*(?:\.|\/\*|--)|(?:\s+(?:session|local))?\s*(?:\/\*|--))`,
  'i',
);

/** @returns undefined if there are too many of them, or too many mentions of them */
function namesIn(text: string, patterns: readonly RegExp[]): Set<string> | undefined {
  const names = new Set<string>();
  let mentions = 0;
  for (const pattern of patterns) {
    for (const [, name = ''] of text.matchAll(pattern)) {
      names.add(name.replace(/[\s"]+/g, '').toLowerCase());
      mentions += 1;
      if (names.size > MAX_CUSTOM_SETTINGS || mentions > MAX_CUSTOM_MENTIONS) return undefined;
    }
  }
  return names;
}

const MAY_MAKE_OPTIONS = /\bset_config\b|\b(?:re)?set\s/i;
/** A SET whose name is put together when it runs: `EXECUTE format('SET LOCAL my.%I = …')`. */
const COMPUTED_SET = /\bset\s+(?:(?:session|local)\s+)?(?:"?[a-z_][\w$]*"?\s*\.\s*)?"?(?:%|'\s*\|\|)/i;

/**
 * The customized options that may exist in a session once this text has run, also those that it sets until the end of the transaction
 * or resets. Those that a function sets are not seen.
 */
export function customOptions(text: string): CustomOptions {
  return optionsMade(text, customSettings(text));
}

/** What a text sets of the customized options (`my.own`, in lower case). */
interface CustomSettings {
  /** Undefined if there are too many of them, or too many mentions of them. */
  readonly names: ReadonlySet<string> | undefined;
  /** There may be others, whose names the text does not show. */
  readonly hasUnknown: boolean;
}

/** @see https://www.postgresql.org/docs/current/runtime-config-custom.html */
function customSettings(text: string): CustomSettings {
  return { names: namesIn(text, [CUSTOM_SET, CUSTOM_SET_CONFIG]), hasUnknown: UNKNOWN_SETTING.test(text) };
}

function optionsMade(text: string, { names: set, hasUnknown }: CustomSettings): CustomOptions {
  if (!MAY_MAKE_OPTIONS.test(text)) return NO_OPTIONS;
  const reset = set && namesIn(text, [CUSTOM_RESET]);
  const names = reset && new Set([...set, ...reset]);
  if (names === undefined || names.size > MAX_CUSTOM_SETTINGS || hasUnknown || COMPUTED_SET.test(text)) {
    return new Set([...(names ?? []), UNNAMED_OPTIONS]);
  }
  return names.size === 0 ? NO_OPTIONS : names;
}

const DEFAULTS = /\balter(?:\s+(?:role|user|database)\b|\s*(?:\/\*|--))|\bdrop(?:\s+owned\b|\s*(?:\/\*|--))/i;

const NO_NAMES: readonly string[] = [];
const NAME = String.raw`(?:"(?:[^"]|"")*"|[\w$\x80-\xff]+)`;
const DEFAULT_OF_ROLE = new RegExp(String.raw`^alter\s+(?:role|user)\s+${NAME}(?:\s+in\s+database\s+${NAME})?\s+set\s+"?(\w+)"?`, 'i');
/** The rest of a longer text is not read. */
const DEFAULTS_MAX_CHARACTERS = 65_536;

/** The settings for which the text gives roles a default (`ALTER ROLE … SET`), one for each such statement, in lower case. */
export function defaultsOfRoles(text: string, options?: LexerOptions): readonly string[] {
  if (!DEFAULTS.test(text)) return NO_NAMES;
  const names: string[] = [];
  for (const statement of eachStatement(text.slice(0, DEFAULTS_MAX_CHARACTERS), options)) {
    const name = statement && DEFAULT_OF_ROLE.exec(statement.text)?.[1];
    if (name !== undefined) names.push(lowerCase(name));
  }
  return names;
}

/**
 * Whether the text may change what new sessions of a role or database start with: settings, or by DROP OWNED the schema `public`, which the next
 * login makes again. ALTER and DROP before a comment may too.
 */
export function changesDefaults(text: string): boolean {
  return DEFAULTS.test(text);
}

/** Whether a match of `second` follows one of `first`, at any distance. A single pattern would search again from each match of `first`. */
function isFollowed(text: string, first: RegExp, second: RegExp): boolean {
  const at = text.search(first);
  return at >= 0 && second.test(text.slice(at));
}

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
  /** The names in its EXECUTE statements; none where they are not all known. */
  readonly executes: readonly string[];
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
  /** The text mentions process IDs of backends, or the addresses of a connection. */
  readonly mentionsPids: boolean;
  /** The text reads a view of sessions. */
  readonly listsSessions: boolean;
  /** As {@link changesDefaults}. */
  readonly changesDefaults: boolean;
  /** As {@link defaultsOfRoles}. */
  readonly defaultsOfRoles: readonly string[];
  /** The text is SHOW search_path, or a single EXPLAIN, in whose rows there are names that are not the client's. */
  readonly shows: 'search_path' | 'plan' | 'names' | undefined;
  /** There are such names where the value of a parameter is the name of the schema `public`. */
  readonly asksByParameter: boolean;
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
  executes: [],
  listsPrepared: false,
  resets: false,
  cannotBePreparedAgain: false,
  deallocates: false,
  deallocatesAll: false,
  mentionsPids: false,
  listsSessions: false,
  changesDefaults: false,
  defaultsOfRoles: NO_NAMES,
  shows: undefined,
  asksByParameter: false,
  isTruncated: false,
};

/** Every text with a trait matches this pattern. Most texts do not, and need no other test. */
const ANY_TRAIT =
  /\b(?:set_config|setseed|reset|discard|deallocate|prepare|execute|declare|listen|unlisten|close|load|temp|temporary|pg_temp\w*|hold|pg_(?:try_)?advisory\w*|currval|lastval|nextval|setval|insert|copy|merge|pg_backend_pid|pg_(?:cancel|terminate)_backend|pg_blocking_pids|pg_stat_(?:activity|ssl|gssapi|progress_\w+)|inet_(?:client|server)_(?:addr|port)|pg_prepared_statements?|pg_settings|set_limit|default|role|user|database)\b|\bu&"|\b(?:set|do|call|drop|show|explain)\b(?<=(?:^|;|\*\/|[\n\r]|begin)\s*\w+)/i;

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
const PIDS =
  /\bpg_(?:backend_pid|cancel_backend|terminate_backend|blocking_pids|stat_(?:activity|ssl|gssapi|progress_\w+))\b|\binet_(?:client|server)_(?:addr|port)\b/i;
/** Views with a row for a session, which have its process id. */
export const LISTED_SESSIONS = /\bpg_stat_(?:activity|ssl|gssapi|progress_\w+)\b/i;
export const SHOWS_SEARCH_PATH = /^\s*show\s+(?:search_path|"search_path")\s*(?:;\s*)?$/i;

/**
 * @param original text in any encoding that contains ASCII, for example UTF-8 bytes decoded as Latin-1
 * @param options how the server reads it. Only EXPLAIN is read by them: the patterns do not depend on where strings end
 */
export function sessionTraitsOf(original: string, options?: LexerOptions): SessionTraits {
  if (!ANY_TRAIT.test(original)) return NO_TRAITS;
  const text = ESCAPED_NAME.test(original) ? withNamesUnescaped(original) : original;
  const lasting = withoutLocalSettings(text);
  const custom = customSettings(lasting);
  const made = lasting === text ? custom : customSettings(text);
  const namesPrepared = PREPARED.test(text) || isFollowed(text, EXPLAIN, EXECUTE);
  const listsPrepared = PREPARED_LIST.test(text);
  return {
    leavesState: mayChangeSession(lasting) ? 'yes' : 'unknown',
    changesSettings: mayChangeSession(text),
    customSettings: [...(custom.names ?? [])],
    setsUnknownSettings: custom.names === undefined || custom.hasUnknown,
    customOptions: optionsMade(text, made),
    touchesAdvisoryLocks: ADVISORY.test(text),
    readsSequenceState: SEQUENCE_READ.test(text),
    callsSequenceFunction: SEQUENCE_READ_CALL.test(text),
    advancesSequences: SEQUENCE_MOVE.test(text) || isFollowed(text, UPDATE, DEFAULT),
    insertsWithoutReturning: INSERT.test(text) && !RETURNING.test(original),
    seedsRandom: SEED.test(text),
    namesPrepared,
    executes: namesPrepared && !listsPrepared ? executedNames(text) : NO_NAMES,
    listsPrepared,
    resets: RESETS.test(text),
    cannotBePreparedAgain: false,
    deallocates: DEALLOCATES.test(text),
    deallocatesAll: isFollowed(original, DEALLOCATE_OR_DISCARD, ALL),
    mentionsPids: PIDS.test(text),
    listsSessions: LISTED_SESSIONS.test(text),
    changesDefaults: changesDefaults(text),
    defaultsOfRoles: defaultsOfRoles(text, options),
    shows: SHOWS_SEARCH_PATH.test(original) ? 'search_path' : EXPLAIN.test(text) && isOneExplain(original, options) ? 'plan' : undefined,
    asksByParameter: false,
    isTruncated: false,
  };
}

const EXECUTED = /\bexecute\b(?:\s+("(?:[^"]|"")+"|[a-z_\x80-\xff][\w$\x80-\xff]*))?/gi;
const MAX_EXECUTED = 100;

/** @returns none if one of them is not seen */
function executedNames(text: string): readonly string[] {
  const names = new Set<string>();
  for (const [, name] of text.matchAll(EXECUTED)) {
    if (name === undefined || names.size === MAX_EXECUTED) return NO_NAMES;
    names.add(name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : lowerCase(name));
  }
  return [...names];
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
    listsSessions: false,
    shows: undefined,
    isTruncated: true,
  };
}

/** The changes of a text that the audit log records: those of objects and roles. */
export interface ObjectChanges {
  /** The text may change objects or roles. */
  readonly isWatched: boolean;
  /** The text may create a table or view from a query. The command tag is then that of the query. */
  readonly createsFromQuery: boolean;
}

/** Matches every text for which {@link objectChanges} finds anything, and few others. */
export const ANY_OBJECT_CHANGE = /\b(?:create|alter|drop|grant|revoke|reassign|truncate|comment|security|import|do|into)\b/i;
/** Keywords that hardly ever have another meaning. */
const CERTAIN_KEYWORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b/i;
/** Keywords that often have another meaning: the tokens decide. */
const AMBIGUOUS_KEYWORD = /\b(?:comment|security|import)\b|\bdo\b(?!\s+(?:nothing|update)\b)/i;
const SELECT = /\bselect\b/i;
const INTO = /\binto\b/i;

/** @returns undefined for a text that changes nothing */
export function objectChanges(text: string): ObjectChanges | undefined {
  if (!ANY_OBJECT_CHANGE.test(text)) return undefined;
  const isCertain = CERTAIN_KEYWORD.test(text);
  if (!isCertain && !AMBIGUOUS_KEYWORD.test(text) && !isFollowed(text, SELECT, INTO)) return undefined;
  const { isWatched, createsFromQuery } = changesIn(text);
  return isCertain || isWatched ? { isWatched: true, createsFromQuery } : undefined;
}

/** Whether {@link objectChanges} finds anything. */
export function mayChangeObjects(text: string): boolean {
  if (!ANY_OBJECT_CHANGE.test(text)) return false;
  return CERTAIN_KEYWORD.test(text) || ((AMBIGUOUS_KEYWORD.test(text) || isFollowed(text, SELECT, INTO)) && changesIn(text).isWatched);
}

const PIECE_KEYWORD = /\b(?:create|alter|drop|grant|revoke|reassign|truncate)\b|\bdo\b(?=\s*(?:\$|'|language\b))/i;

/** Looks at one piece of a text that is not seen whole. Any keyword that may mean a change counts as one. */
export function objectChangesInPiece(piece: string): ObjectChanges {
  const createsFromQuery = ANY_OBJECT_CHANGE.test(piece);
  return { createsFromQuery, isWatched: createsFromQuery && PIECE_KEYWORD.test(piece) };
}

/** Reading this many takes a few milliseconds. */
const TOKENS_MAX = 10_000;
const UNKNOWN = { isWatched: true, createsFromQuery: true };

/** Reads the tokens of all statements in the text. */
function changesIn(text: string): ObjectChanges {
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (text.includes("\\'")) return UNKNOWN;
  const statement = new StatementReader();
  const lexer = new Lexer(text);
  for (let count = 0; lexer.next() !== Token.End; count += 1) {
    if (count === TOKENS_MAX) return UNKNOWN;
    const { kind, start, end } = lexer;
    if (kind === Token.Word) statement.word(text.slice(start, end).toLowerCase());
    else statement.other(kind === Token.Punctuation ? text.charCodeAt(start) : 0);
  }
  return statement;
}

/** The second keyword of statements for which the first one is not enough. */
const SECOND_KEYWORDS: Readonly<Record<string, string>> = { comment: 'on', security: 'label', import: 'foreign' };

/** Reads the keywords of one statement after the other. */
class StatementReader implements ObjectChanges {
  isWatched = false;
  createsFromQuery = false;
  #first = '';
  #count = 0;
  #analyzes = false;
  /** Whether SELECT was read, for each level of parentheses. INTO after SELECT creates a table; otherwise it belongs to INSERT or MERGE. */
  #selects = [false];

  word(word: string): void {
    this.#count += 1;
    if (this.#count === 1) this.#begin(word);
    else if (this.#count === 2 && SECOND_KEYWORDS[this.#first] === word) this.isWatched = true;
    if (word === 'select') this.#selects[this.#selects.length - 1] = true;
    else if (word === 'into' && this.#selects.at(-1) === true) this.#creates();
    else if (this.#first !== 'explain') return;
    else if (word === 'analyze' || word === 'analyse') this.#analyzes = true;
    else if (word === 'create') this.#creates();
  }

  /** Reads a token that is not a keyword or identifier. @param mark the character of a punctuation token, else 0 */
  other(mark: number): void {
    if (mark === Code.Semicolon) this.#next();
    else if (mark === Code.Open) this.#selects.push(false);
    else if (mark === Code.Close && this.#selects.length > 1) this.#selects.pop();
    else if (mark !== Code.Close) this.#count += 1;
  }

  #begin(word: string): void {
    this.#first = word;
    if (word === 'do') this.isWatched = true;
    if (word === 'create') this.#creates();
  }

  /** EXPLAIN creates nothing, except with ANALYZE, which runs the statement. */
  #creates(): void {
    if (this.#first === 'explain' && !this.#analyzes) return;
    this.isWatched = true;
    this.createsFromQuery = true;
  }

  #next(): void {
    this.#first = '';
    this.#count = 0;
    this.#analyzes = false;
    this.#selects = [false];
  }
}

/**
 * What the types of dates and times read as a moment that is not always the same. Their other words (`epoch`, `infinity`, `allballs`)
 * are constant.
 * @see https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-DATETIME-SPECIAL-VALUES
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/datetime.c datetktbl
 */
const MOMENTS = ['now', 'today', 'tomorrow', 'yesterday'];
/**
 * One of the words. Whatever is no letter ends a word. Among the letters may stand what arrays, rows and ranges quote parts of a value
 * with, and the end of a line after which a string goes on.
 */
const MOMENT = new RegExp(`(?<![a-z])(?:${MOMENTS.map((word) => [...word].join(`["'\\\\\\s]*`)).join('|')})(?![a-z])`, 'i');
/** The end of each of the words: most texts have none, which is found out sooner. */
const END_OF_MOMENT = /o["'\\\s]*w|d["'\\\s]*a["'\\\s]*y/i;
/** A string constant may begin. */
const STRING = /'|\$\D/;
/** The letters in a string may not be those in the text: there are escapes, or comments between its parts. */
const HIDES_LETTERS = /\\|u&|--/i;
/** Of longer texts the strings are not told from the rest. */
const READ_MAX_CHARACTERS = 16_384;

/** Whether the text means the same when it is prepared again with the same settings. */
export function canBePreparedAgain(text: string): boolean {
  return !namesMoment(text);
}

/**
 * Whether a text may have a constant of which PostgreSQL makes the present moment when it prepares the statement: `'now'`, in
 * whatever quotes and in a value of whatever type. Constants of all types count, because the text does not show their types.
 */
function namesMoment(text: string): boolean {
  if (!STRING.test(text)) return false;
  const hidesLetters = HIDES_LETTERS.test(text);
  if (!hidesLetters && !isMoment(text)) return false;
  if (text.length > READ_MAX_CHARACTERS) return true;
  if (hasMoment(new Lexer(text), hidesLetters)) return true;
  // With `standard_conforming_strings` off, a backslash escapes in every string, and strings may end elsewhere.
  return text.includes('\\') && hasMoment(new Lexer(text, { standardConformingStrings: false }), true);
}

function hasMoment(lexer: Lexer, hidesLetters: boolean): boolean {
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    if (!isString(kind) || !(hidesLetters || isMoment(lexer.text.slice(lexer.start, lexer.end)))) continue;
    const content = contentOf(lexer)?.text;
    if (content === undefined || isMoment(content)) return true;
  }
  return false;
}

function isMoment(text: string): boolean {
  return END_OF_MOMENT.test(text) && MOMENT.test(text);
}

const QUERY = /^\s*(?:select|insert|update|delete|merge|values|with|table)\b/i;

/** Whether Postern may prepare a text that the client has not asked it to prepare. */
export function isPreparable(text: string, traits: SessionTraits): boolean {
  const { leavesState, namesPrepared, listsPrepared, mentionsPids } = traits;
  return leavesState !== 'yes' && !namesPrepared && !listsPrepared && !mentionsPids && QUERY.test(text) && canBePreparedAgain(text);
}

/** The rest of a longer text is not read, because that would block the event loop. */
const DEALLOCATE_TOKENS_MAX = 20_000;

/** The names in the `DEALLOCATE name` statements of a text, in order, and folded as PostgreSQL folds them. */
export function deallocatedNames(text: string, options?: LexerOptions): string[] {
  const names: string[] = [];
  const reader = new DeallocateReader();
  const lexer = new Lexer(text, options);
  for (let read = 0; read < DEALLOCATE_TOKENS_MAX && lexer.next() !== Token.End; read += 1) {
    const name = reader.read(lexer);
    if (name !== undefined) names.push(name);
  }
  // PREPARE is a name itself where none follows it.
  if (reader.awaits === 'name or end') names.push('prepare');
  return names;
}

/** Reads the tokens of one statement after the other, up to the name in a DEALLOCATE. */
class DeallocateReader {
  awaits: 'statement' | 'name or prepare' | 'name or end' | 'end' = 'statement';

  /** @returns the name that ends with this token */
  read({ kind, text, start, end, close }: Lexer): string | undefined {
    const { awaits } = this;
    if (kind === Token.Punctuation && text.charCodeAt(start) === Code.Semicolon) {
      this.awaits = 'statement';
      return awaits === 'name or end' ? 'prepare' : undefined;
    }
    if (awaits === 'end') return undefined;
    const word = kind === Token.Word ? lowerCase(text.slice(start, end)) : undefined;
    if (awaits === 'statement') this.awaits = word === 'deallocate' ? 'name or prepare' : 'end';
    else this.awaits = word === 'prepare' && awaits === 'name or prepare' ? 'name or end' : 'end';
    if (awaits === 'statement' || this.awaits === 'name or end' || word === 'all') return undefined;
    const name = kind === Token.QuotedIdentifier ? text.slice(start + 1, close - 1).replaceAll('""', '"') : word;
    return name && truncated(name);
  }
}

/** NAMEDATALEN - 1: the server truncates longer names in SQL, between characters. */
const NAME_MAX_BYTES = 63;

/** @param name UTF-8 as Latin-1 */
function truncated(name: string): string {
  if (name.length <= NAME_MAX_BYTES) return name;
  let end = NAME_MAX_BYTES;
  while ((name.charCodeAt(end) & 0xc0) === 0x80) end -= 1;
  return name.slice(0, end);
}

/** A `PREPARE name (types) AS query`. */
export interface PrepareStatement {
  /** As PostgreSQL folds and truncates it. */
  readonly name: string;
  readonly text: string;
  readonly query: string;
  /** Where the query begins in the whole text. */
  readonly queryStart: number;
}

/** The PREPARE statements in a text, in order. One whose name is written with Unicode escapes is left out. @param text not a long one */
export function* prepareStatements(text: string, options?: LexerOptions): Generator<PrepareStatement, void> {
  for (const statement of eachStatement(text, options)) {
    if (statement === undefined) continue;
    const read = prepareStatement(new Lexer(statement.text, options));
    if (read !== undefined) yield { ...read, queryStart: statement.start + read.queryStart };
  }
}

function prepareStatement(lexer: Lexer): PrepareStatement | undefined {
  const { text } = lexer;
  const word = () => (lexer.kind === Token.Word ? lowerCase(text.slice(lexer.start, lexer.end)) : undefined);
  lexer.next();
  if (word() !== 'prepare') return undefined;
  lexer.next();
  const name = lexer.kind === Token.QuotedIdentifier ? text.slice(lexer.start + 1, lexer.close - 1).replaceAll('""', '"') : word();
  if (name === undefined) return undefined;
  lexer.next();
  let nesting = 0;
  do {
    const mark = lexer.kind === Token.Punctuation ? text.charCodeAt(lexer.start) : 0;
    if (mark === Code.Open) nesting += 1;
    else if (mark === Code.Close) nesting -= 1;
    else if (nesting === 0) break;
  } while (lexer.next() !== Token.End);
  return word() === 'as' ? { name: truncated(name), text, query: text.slice(lexer.end), queryStart: lexer.end } : undefined;
}
