/**
 * Whether a statement leaves something in its session that outlives the transaction, or ends such state: `yes` where its
 * text speaks of it, `no` where all of it is known to be harmless. The wire door asks the server after a `yes`; the HTTP
 * door resets the session unless it is a `no`.
 */
export type LeavesState = 'yes' | 'no' | 'unknown';

/** A session with more of the client's own settings than that stays on its backend. */
export const MAX_CUSTOM_SETTINGS = 100;
const MAX_CUSTOM_MENTIONS = 1_000;

/**
 * A word at the beginning of a statement: at the start, behind a semicolon or a comment, in a block. What is before it is
 * looked at from the word: the other way round, much white space would be read again and again.
 * @param follower what has to follow: it is looked at first, which costs less
 */
export const beginning = (word: string, follower = '') =>
  String.raw`\b(?:${word})\b(?=${follower})(?<=(?:^|;|\*\/|--[^\n\r]*[\n\r]|\bbegin\b|\bthen\b|\$)\s*\w+)${follower}`;

const STATE = new RegExp(
  String.raw`${beginning('set|reset|discard|deallocate|prepare|declare|listen|unlisten|close|load|do|call')}|\b(?:set_config|set_limit|setseed|temp|temporary|pg_temp\w*|hold)\b`,
  'i',
);

/** @param text as {@link withoutLocalSettings} for what outlives the transaction, else for what changes settings at all */
export function mayChangeSession(text: string): boolean {
  return STATE.test(text) || updatesSettings(text);
}

const UPDATE = /\bupdate\b/i;
const SETTINGS = /\bpg_settings\b/i;

/** An UPDATE of the view pg_settings is a SET. @see https://www.postgresql.org/docs/current/view-pg-settings.html */
export function updatesSettings(text: string): boolean {
  return isFollowed(text, UPDATE, SETTINGS);
}

/** Of arguments of which it is certain, from the beginning of a call on, where each of them ends: a character, or a string or name. */
const PART = String.raw`(?:[^()'"$\\/-]|'[^'\\]*'|"[^"]*"|\$\d+\b(?!\$)|-(?!-)|\/(?!\*))`;
const LOCAL_CALL = String.raw`\bset_config(?=\s*\((?:${PART}|\(${PART}{0,500}\)){0,2000}?,\s*true\s*\))`;
const LOCAL_END = /,\s*true\s*\)/i;
const LOCAL_CALL_HERE = new RegExp(LOCAL_CALL, 'iy');
const LOCAL_CALLS = new RegExp(LOCAL_CALL, 'gi');
/** `SET local.x = 1` and `SET transaction.x = 1` are settings of the client's own. */
const LOCAL = String.raw`\s+(?:local|transaction|constraints)\b(?!\s*(?:\.|\/\*|--))`;
const LOCAL_HERE = new RegExp(LOCAL, 'iy');
const LOCAL_SETS = new RegExp(beginning('set', LOCAL), 'gi');

/** Whether a call of set_config that begins here ends with the transaction, as `set_config(…, true)` does. */
export function endsWithTransaction(text: string, start: number): boolean {
  LOCAL_CALL_HERE.lastIndex = start;
  return LOCAL_CALL_HERE.test(text);
}

/** Whether a SET that ends here is SET LOCAL, SET TRANSACTION or SET CONSTRAINTS, which end with the transaction. */
export function setsLocally(text: string, end: number): boolean {
  LOCAL_HERE.lastIndex = end;
  return LOCAL_HERE.test(text);
}

/**
 * The text without the words that set something up to the end of the transaction. A call that only looks like one, in a
 * string, loses its name and nothing else: what is code behind it stays.
 */
export function withoutLocalSettings(text: string): string {
  const unlessLocal = LOCAL_END.test(text) ? text.replace(LOCAL_CALLS, '') : text;
  return unlessLocal.replace(LOCAL_SETS, ';');
}

const CUSTOM_NAME = String.raw`"?[a-z_][\w$]*"?(?:\s*\.\s*"?[\w$]+"?)+`;
const CUSTOM_SET = new RegExp(String.raw`\bset\s+(?:session\s+)?(${CUSTOM_NAME})\s*(?:=|to\b)`, 'gi');
const CUSTOM_SET_CONFIG = /\bset_config\s*\(\s*'([a-z_][\w$]*\.[\w$.]+)'/gi;
/** A name that is put together, or one that is not read above: in other letters, or with a comment beside it. */
const SETS_UNNAMED = new RegExp(
  String.raw`\bset_config\s*\((?!\s*'[\w$.]+'\s*,)|${beginning('set')}(?:\s+(?:session\s+)?(?!${CUSTOM_NAME}\s*(?:=|to\b))[^\s=;.]+\s*(?:\.|\/\*|--)|(?:\s+session)?\s*(?:\/\*|--))`,
  'i',
);

/**
 * The client's own settings (`my.own`, in lower case) that a text sets beyond its transaction.
 * @param lasting as {@link withoutLocalSettings}
 * @returns undefined when there are more than are worth following, or more mentions of them than are worth reading
 */
export function customSettings(lasting: string): readonly string[] | undefined {
  const names = new Set<string>();
  let mentions = 0;
  for (const pattern of [CUSTOM_SET, CUSTOM_SET_CONFIG]) {
    for (const [, name = ''] of lasting.matchAll(pattern)) {
      names.add(name.replace(/[\s"]+/g, '').toLowerCase());
      mentions += 1;
      if (names.size > MAX_CUSTOM_SETTINGS || mentions > MAX_CUSTOM_MENTIONS) return undefined;
    }
  }
  return [...names];
}

/** @param lasting as {@link withoutLocalSettings} */
export function setsUnnamed(lasting: string): boolean {
  return SETS_UNNAMED.test(lasting);
}

const DEFAULTS = /\balter(?:\s+(?:role|user|database)\b|\s*(?:\/\*|--))/i;

/** Whether it changes what new sessions of a role or database start with; behind a comment it may. */
export function changesDefaults(text: string): boolean {
  return DEFAULTS.test(text);
}

/** Whether a second word stands behind a first one, however far: in one pattern, each first one would be tried. */
export function isFollowed(text: string, first: RegExp, second: RegExp): boolean {
  const at = text.search(first);
  return at >= 0 && second.test(text.slice(at));
}
