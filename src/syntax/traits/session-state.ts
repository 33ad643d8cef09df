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
export const atStatementStart = (keyword: string, follower = '') =>
  String.raw`\b(?:${keyword})\b(?=${follower})(?<=(?:^|;|\*\/|--[^\n\r]*[\n\r]|\bbegin\b|\bthen\b|\$)\s*\w+)${follower}`;

const STATE = new RegExp(
  String.raw`${atStatementStart('set|reset|discard|deallocate|prepare|declare|listen|unlisten|close|load|do|call')}|\b(?:set_config|set_limit|setseed|temp|temporary|pg_temp\w*|hold)\b`,
  'i',
);

/** @param text the result of {@link withoutLocalSettings}, to find what outlives the transaction; else the whole text */
export function mayChangeSession(text: string): boolean {
  return STATE.test(text) || updatesSettings(text);
}

const UPDATE = /\bupdate\b/i;
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
export function withoutLocalSettings(text: string): string {
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

/**
 * The customized options (`my.own`, in lower case) that a text sets beyond its transaction.
 * @param lasting the result of {@link withoutLocalSettings}
 * @returns undefined if there are too many of them, or too many mentions of them
 * @see https://www.postgresql.org/docs/current/runtime-config-custom.html
 */
export function customSettings(lasting: string): readonly string[] | undefined {
  const names = namesIn(lasting, [CUSTOM_SET, CUSTOM_SET_CONFIG]);
  return names && [...names];
}

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
  if (!MAY_MAKE_OPTIONS.test(text)) return NO_OPTIONS;
  const names = namesIn(text, [CUSTOM_SET, CUSTOM_SET_CONFIG, CUSTOM_RESET]);
  if (names === undefined || setsUnknownSettings(text) || COMPUTED_SET.test(text)) return new Set([...(names ?? []), UNNAMED_OPTIONS]);
  return names.size === 0 ? NO_OPTIONS : names;
}

/** @param lasting the result of {@link withoutLocalSettings} */
export function setsUnknownSettings(lasting: string): boolean {
  return UNKNOWN_SETTING.test(lasting);
}

const DEFAULTS = /\balter(?:\s+(?:role|user|database)\b|\s*(?:\/\*|--))/i;

/** Whether the text may change the settings with which new sessions of a role or database start. ALTER before a comment may too. */
export function changesDefaults(text: string): boolean {
  return DEFAULTS.test(text);
}

/** Whether a match of `second` follows one of `first`, at any distance. A single pattern would search again from each match of `first`. */
export function isFollowed(text: string, first: RegExp, second: RegExp): boolean {
  const at = text.search(first);
  return at >= 0 && second.test(text.slice(at));
}
