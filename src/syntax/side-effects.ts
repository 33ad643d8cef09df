import { isIdentifier, isQuoted, isQuotedIdentifier, Lexer, lowerCase, Token, type TokenKind } from './scanner.ts';
import {
  type CustomOptions,
  changesDefaults,
  customOptions,
  endsWithTransaction,
  type LeavesState,
  NO_OPTIONS,
  objectChanges,
  optionsAmong,
  setsLocally,
  UNNAMED_OPTIONS,
  updatesSettings,
  withOptions,
} from './session-traits.ts';

/** What a statement may change in its session beyond its transaction. */
export interface SideEffects {
  /** `no`: the next user of the session can notice nothing. */
  readonly leavesState: LeavesState;
  /** The statement reads the last value that a sequence gave to this session (`currval`, `lastval`). */
  readonly readsSequences: boolean;
  /** The statement changes the settings with which new sessions start. */
  readonly changesDefaults: boolean;
  /** The statement creates a table or view from a query, of which its command tag (`SELECT`) says nothing. */
  readonly createsFromQuery: boolean;
  /** The statement only reads or writes rows. If it fails, it has had no effect, and may run again. */
  readonly isPlain: boolean;
  /** Customized options that may exist in the session afterwards, even if it is reset. */
  readonly customOptions: CustomOptions;
}

const PLAIN = new Set(['select', 'insert', 'update', 'delete', 'merge', 'with', 'values', 'table']);
const HARMLESS = new Set(['explain', 'show', 'lock', 'savepoint', 'release', 'rollback', 'notify']);
const TEMPORARY = /^(?:temp|temporary|pg_temp.*)$/;
/** A name with Unicode escapes (`U&"pg\005ftemp"`) may be any name. */
const QUOTED_TEMPORARY = /^(?:U&|"pg_temp)/i;
const SEQUENCE_READ = /currval|lastval|^U&/i;
const SEQUENCE_READ_ANYWHERE = /currval|lastval/i;

/** Keywords after which a name before a parenthesis is a table, not a function. */
const BEFORE_TABLE = new Set(['into', 'as', 'with', 'recursive']);

/** Longer texts, and those with more tokens, are not read: their side effects are unknown. */
const TEXT_MAX_CHARACTERS = 65_536;
const TOKENS_MAX = 8_192;

const UNKNOWN: SideEffects = {
  leavesState: 'unknown',
  readsSequences: true,
  changesDefaults: false,
  createsFromQuery: false,
  isPlain: false,
  customOptions: NO_OPTIONS,
};
const UNKNOWN_WITH_OPTIONS: SideEffects = { ...UNKNOWN, customOptions: new Set([UNNAMED_OPTIONS]) };

/** Those of a text that is not read. */
function unknownEffects(sql: string): SideEffects {
  return MAY_SET.test(sql) ? UNKNOWN_WITH_OPTIONS : UNKNOWN;
}

const MAY_SET = /^\s*(?:set|reset|do|call|alter|create)\b|\bset_config\b/i;

/**
 * Decides by a statement's text whether its session must be reset before another caller gets it. A command or function that is
 * not known to be harmless requires a reset. Functions that triggers, views and operators call are not seen.
 */
export function sideEffectsOf(sql: string): SideEffects {
  if (sql.length > TEXT_MAX_CHARACTERS) return unknownEffects(sql);
  const tokens = tokensOf(sql);
  if (tokens === undefined) return unknownEffects(sql);
  const createsFromQuery = objectChanges(sql)?.createsFromQuery === true;
  const isPlain = PLAIN.has(tokens[0]?.text ?? '') && !createsFromQuery;
  const leavesState = leavesNothing(sql, tokens) ? 'no' : 'unknown';
  return {
    isPlain,
    createsFromQuery,
    leavesState,
    changesDefaults: !isPlain && changesDefaults(sql),
    readsSequences: tokens.some((token) => isSequenceRead(sql, token)) || (leavesState !== 'no' && SEQUENCE_READ_ANYWHERE.test(sql)),
    customOptions: maySetOptions(sql, tokens) ? customOptions(sql) : NO_OPTIONS,
  };
}

const SETTING_COMMANDS = new Set(['set', 'reset', 'do', 'call', 'alter', 'create']);
const SET_CONFIG = /set_config|^U&/i;

function maySetOptions(sql: string, tokens: readonly SqlToken[]): boolean {
  if (SETTING_COMMANDS.has(tokens[0]?.text ?? '')) return true;
  return tokens.some(({ kind, start, end }) => isIdentifier(kind) && SET_CONFIG.test(sql.slice(start, end)));
}

const SETS_FIRST = /^\s*(?:set\s|select\s+(?:pg_catalog\s*\.\s*)?set_config\b)/i;

/**
 * The customized options that statements set before any of them can read one. It makes no difference to such statements whether the
 * options exist in the session already.
 * @param settings those that are set before the statements, by name
 */
export function optionsSetFirst(statements: Iterable<{ readonly sql: string }>, settings: object = {}): CustomOptions {
  let names = optionsAmong(Object.keys(settings));
  for (const { sql } of statements) {
    if (!SETS_FIRST.test(sql) || sql.length > TEXT_MAX_CHARACTERS) break;
    const tokens = tokensOf(sql);
    if (tokens === undefined || !onlySets(tokens)) break;
    names = withOptions(names, customOptions(sql));
  }
  return names;
}

const SELECT_WORDS = new Set(['select', 'pg_catalog', 'set_config', 'as', 'true', 'false', 'text', 'null']);

/** SET, or a SELECT that only calls `set_config`, with constants and parameters. */
function onlySets(tokens: readonly SqlToken[]): boolean {
  if (tokens[0]?.text === 'set') return true;
  return tokens.every(({ kind, text }, at) => {
    const before = tokens[at - 1]?.text;
    if (text === '(') return before === 'set_config';
    return !isIdentifier(kind) || SELECT_WORDS.has(text) || before === 'as';
  });
}

function leavesNothing(sql: string, tokens: readonly SqlToken[]): boolean {
  const [first, second] = tokens;
  const command = first?.text ?? '';
  const isKnown =
    PLAIN.has(command) || HARMLESS.has(command) || (command === 'set' && second !== undefined && setsLocally(sql, first?.end ?? 0));
  // With `standard_conforming_strings` off, a string may end elsewhere.
  if (!isKnown || updatesSettings(sql) || sql.includes("\\'")) return false;
  return tokens.every((token, at) => !isTemporary(sql, token) && isHarmless(sql, tokens, at));
}

function isSequenceRead(sql: string, { kind, start, end }: SqlToken): boolean {
  return isIdentifier(kind) && SEQUENCE_READ.test(sql.slice(start, end));
}

/** The side effects of the statements of one request. All of them together may have as many characters as a single statement. */
export class SideEffectsCache {
  readonly #known = new Map<string, SideEffects>();
  #charactersLeft = TEXT_MAX_CHARACTERS;

  of(sql: string): SideEffects {
    const known = this.#known.get(sql);
    if (known !== undefined) return known;
    this.#charactersLeft -= sql.length;
    // The text is not stored either: with many long keys of equal length, V8 has to compare each with all others.
    if (this.#charactersLeft < 0) return unknownEffects(sql);
    const sideEffects = sideEffectsOf(sql);
    this.#known.set(sql, sideEffects);
    return sideEffects;
  }
}

interface SqlToken {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Keywords and unquoted identifiers in lower case; operators and punctuation as written; empty for all other tokens. */
  readonly text: string;
}

/** @returns undefined if there are more than {@link TOKENS_MAX} */
function tokensOf(sql: string): readonly SqlToken[] | undefined {
  const tokens: SqlToken[] = [];
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    if (tokens.length === TOKENS_MAX) return undefined;
    const { kind, start, end } = lexer;
    tokens.push({ kind, start, end, text: textOf(sql, lexer) });
  }
  return tokens;
}

function textOf(sql: string, { kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(sql.slice(start, end));
  return kind === Token.Operator || kind === Token.Punctuation ? sql.slice(start, end) : '';
}

/** Whether the token is TEMPORARY or TEMP, or names the schema of temporary objects (`pg_temp`). */
function isTemporary(sql: string, { kind, text, start, end }: SqlToken): boolean {
  return isQuotedIdentifier(kind) ? QUOTED_TEMPORARY.test(sql.slice(start, end)) : TEMPORARY.test(text);
}

/** Whether the token opens no parenthesis of a call, or that of a call which is known to be harmless. */
function isHarmless(sql: string, tokens: readonly SqlToken[], at: number): boolean {
  const name = tokens[at - 1];
  if (tokens[at]?.text === '.') return !isFunctionalNotation(tokens, at);
  if (tokens[at]?.text !== '(' || name === undefined || !isIdentifier(name.kind)) return true;
  const start = startOfName(tokens, at - 1);
  const before = tokens[start - 1]?.text;
  // A table and its columns: INSERT INTO t (…), … AS t (…), WITH t (…) AS …
  if (before !== undefined && BEFORE_TABLE.has(before)) return true;
  if (name.kind !== Token.Word) return false;
  if (name.text === 'set_config') return endsWithTransaction(sql, name.start);
  const isBuiltIn = start === at - 1 || (start === at - 3 && tokens[start]?.text === 'pg_catalog');
  return isBuiltIn && STATELESS_NAMES.has(name.text);
}

/**
 * Whether the dot may call a function: `(x).f` is `f(x)` where `x` has no column `f`.
 * @see https://www.postgresql.org/docs/current/rowtypes.html#ROWTYPES-USAGE
 */
function isFunctionalNotation(tokens: readonly SqlToken[], dot: number): boolean {
  const [before, after] = [tokens[dot - 1], tokens[dot + 1]];
  return before !== undefined && !isIdentifier(before.kind) && after !== undefined && isIdentifier(after.kind);
}

/** The index at which a name begins, with its qualifiers. */
function startOfName(tokens: readonly SqlToken[], end: number): number {
  let start = end;
  while (tokens[start - 1]?.text === '.') start -= 2;
  return Math.max(0, start);
}

/** Keywords and type names that may precede a parenthesis in a query without calling a function. */
const QUERY_KEYWORDS = `all and any array as between by case distinct else except exists filter from having in intersect is join lateral limit not offset on or
over row select some then union using values when where within bit char decimal interval numeric time timestamp timestamptz varchar`;

/** The same in other statements, and names that an organization's own function may have. */
const OTHER_KEYWORDS = `check conflict cube explain group grouping like materialized order partition returning rollup set sets similar with character date dec
float varbit`;

/** Built-in functions that only compute. */
const COMPUTING_FUNCTIONS = `abs age array_agg array_length avg bool_and bool_or btrim cardinality cast ceil ceiling char_length coalesce concat concat_ws count
date_part date_trunc dense_rank every extract first_value floor greatest json_agg json_build_object jsonb_agg jsonb_array_elements
jsonb_build_array jsonb_build_object lag last_value lead least left length lower ltrim max min mod now nullif position power rank replace
right round row_number rtrim sqrt string_agg substr substring sum to_char trim trunc unnest upper`;

/** Built-in functions that leave nothing in the session. After a call of any other, the session is reset. */
const STATELESS_FUNCTIONS = `acos any_value array_append array_cat array_dims array_lower array_ndims array_position array_positions array_prepend array_remove
array_replace array_to_json array_to_string array_upper ascii asin atan atan2 bit_and bit_length bit_or character_length chr
clock_timestamp col_description convert_from convert_to corr cos cume_dist current_database current_schema current_schemas current_setting
currval date_bin decode degrees div encode exp factorial format format_type gcd generate_series generate_subscripts gen_random_uuid
has_schema_privilege has_table_privilege host initcap json_array_elements json_array_elements_text json_array_length json_build_array
json_each json_each_text json_extract_path json_extract_path_text json_object json_object_agg json_object_keys json_populate_record
json_populate_recordset json_to_record json_to_recordset json_typeof jsonb_array_elements_text jsonb_array_length jsonb_each
jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys jsonb_path_exists
jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_populate_record jsonb_populate_recordset
jsonb_pretty jsonb_set jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof justify_days justify_hours justify_interval
lastval lcm ln localtime localtimestamp log log10 lpad make_date make_interval make_time make_timestamp make_timestamptz md5 mode nextval
nth_value ntile num_nonnulls num_nulls numrange obj_description octet_length overlay percent_rank percentile_cont percentile_disc
pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_backend_pid pg_column_size pg_database_size pg_get_constraintdef pg_get_expr
pg_get_functiondef pg_get_indexdef pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_is_in_recovery pg_notify pg_relation_size
pg_size_pretty pg_sleep pg_table_is_visible pg_table_size pg_total_relation_size pg_try_advisory_xact_lock
pg_try_advisory_xact_lock_shared pg_typeof phraseto_tsquery pi plainto_tsquery quote_ident quote_literal quote_nullable radians random
range_agg regexp_count regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr
regr_slope repeat reverse row_to_json rpad setval setweight sha224 sha256 sha384 sha512 sign sin split_part starts_with
statement_timestamp stddev stddev_pop stddev_samp string_to_array string_to_table strpos tan timeofday to_date to_json to_jsonb to_number
to_regclass to_timestamp to_tsquery to_tsvector transaction_timestamp translate trim_array ts_headline ts_rank ts_rank_cd tsrange
tstzrange daterange int4range int8range tsvector_to_array txid_current unistr uuid_generate_v4 uuid_generate_v7 uuidv4 uuidv7 var_pop
var_samp variance version websearch_to_tsquery width_bucket xmlagg`;

const setOf = (names: string): ReadonlySet<string> => new Set(names.split(/\s+/));

/** Names, in lower case, that may precede a parenthesis in a query that only reads. */
const READ_ONLY_NAMES = setOf(`${QUERY_KEYWORDS} ${COMPUTING_FUNCTIONS}`);
/** Names, in lower case, that may precede a parenthesis in a statement that leaves nothing in its session. */
export const STATELESS_NAMES = setOf(`${QUERY_KEYWORDS} ${OTHER_KEYWORDS} ${COMPUTING_FUNCTIONS} ${STATELESS_FUNCTIONS}`);
/** Built-in functions, in lower case: the usual ones, none of which leaves anything in its session. */
export const USUAL_FUNCTIONS = setOf(`${COMPUTING_FUNCTIONS} ${STATELESS_FUNCTIONS}`);

const READ = /^\s*select\b/i;
/** After FOR, these keywords lock rows. */
const LOCKING_KEYWORDS = new Set(['update', 'share', 'no', 'key']);
const IN_QUOTES = '"';

/**
 * Whether a text only reads, as far as its tokens show. This matters because another client's request may already follow it in the
 * same session, and because it may run twice. If a view calls a function that is not seen here, the effect is the same as in any
 * session pool.
 */
export function mayShare(text: string): boolean {
  // With `standard_conforming_strings` off, a string with a backslash may end elsewhere.
  if (!READ.test(text) || text.includes('\\')) return false;
  const lexer = new Lexer(text);
  let [before, previous] = ['', ''];
  for (let tokenEnd = 0; ; tokenEnd = lexer.end) {
    lexer.next();
    if (hasComment(text, tokenEnd, lexer.start)) return false;
    if (lexer.kind === Token.End) return true;
    const token = tokenText(lexer);
    if (previous === ';' || !isHarmlessToken(lexer, token) || (previous === 'for' && LOCKING_KEYWORDS.has(token))) return false;
    if (token === '(' && !mayPrecedeParenthesis(previous, before)) return false;
    // `(x).f` is `f(x)` where `x` has no column `f`.
    if (previous === '.' && !isName(before) && isName(token)) return false;
    [before, previous] = [previous, token];
  }
}

/** Whether there is a comment between two tokens. Texts with comments may be different each time, so they are not shared. */
function hasComment(text: string, from: number, to: number): boolean {
  return to > from && /\S/.test(text.slice(from, to));
}

/** A keyword or unquoted identifier in lower case; {@link IN_QUOTES} for quoted tokens; else the first character of the token. */
function tokenText({ text, kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(text.slice(start, end));
  return isQuoted(kind) ? IN_QUOTES : text.charAt(start);
}

function isHarmlessToken({ kind }: Lexer, token: string): boolean {
  if (kind === Token.DollarString || kind === Token.Unknown) return false;
  return token !== 'into' && !(kind === Token.Word && token.includes('$'));
}

const NAME = /^[\w\u0080-\uffff]/;

function isName(token: string): boolean {
  return token === IN_QUOTES || NAME.test(token);
}

function mayPrecedeParenthesis(name: string, before: string): boolean {
  if (!NAME.test(name)) return name !== IN_QUOTES;
  return before !== '.' && READ_ONLY_NAMES.has(name);
}
