import { isIdentifier, isQuotedIdentifier, Lexer, Token, type TokenKind } from '../../syntax/scanner.ts';

/** What a statement may do to its session beyond its transaction. */
export interface SideEffects {
  /** It leaves nothing behind that the next borrower of the session could notice. */
  readonly isClean: boolean;
  /** It asks what a sequence last gave to this session. */
  readonly readsSequences: boolean;
  /** It changes what new sessions start with. */
  readonly changesDefaults: boolean;
  /** It reads or writes rows, and may be run again if it fails: nothing of it has happened then. */
  readonly isPlain: boolean;
}

const PLAIN = new Set(['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'MERGE', 'WITH', 'VALUES', 'TABLE']);
const HARMLESS = new Set(['EXPLAIN', 'SHOW', 'LOCK', 'SAVEPOINT', 'RELEASE', 'ROLLBACK', 'NOTIFY']);
/** `SET LOCAL` and its like end with the transaction. */
const SET_LOCAL = new Set(['LOCAL', 'TRANSACTION', 'CONSTRAINTS']);
const TEMPORARY = /^(?:TEMP|TEMPORARY|PG_TEMP.*)$/;
/** With escapes (`U&"pg\005ftemp"`) a name may be any. */
const QUOTED_TEMPORARY = /^(?:U&|"pg_temp)/i;
const DEFAULTS_OF = new Set(['ROLE', 'USER', 'DATABASE']);
const SEQUENCE_READ = /currval|lastval/i;

/** Words that may stand before a parenthesis without calling a function. */
const NO_CALLS = `all and any array as between by case check conflict cube distinct else except exists explain filter from group grouping having
in intersect is join lateral like limit materialized not offset on or order over partition returning rollup row select set sets similar some then union
using values when where with within bit char character date decimal dec float interval numeric time timestamp timestamptz varchar varbit`;

/** Functions of Postgres' own that keep nothing in the session. Others only cost a reset. */
const CALLS = `abs acos age any_value array_agg array_append array_cat array_dims array_length array_lower array_ndims array_position
array_positions array_prepend array_remove array_replace array_to_json array_to_string array_upper ascii asin atan atan2 avg bit_and bit_length
bit_or bool_and bool_or btrim cardinality cast ceil ceiling char_length character_length chr clock_timestamp coalesce col_description
concat concat_ws convert_from convert_to corr cos count cume_dist current_database current_schema current_schemas current_setting currval
date_bin date_part date_trunc decode degrees dense_rank div encode every exp extract factorial first_value floor format format_type
gcd generate_series generate_subscripts gen_random_uuid greatest has_schema_privilege has_table_privilege host initcap json_agg json_array_elements
json_array_elements_text json_array_length json_build_array json_build_object json_each json_each_text json_extract_path
json_extract_path_text json_object json_object_agg json_object_keys json_populate_record json_populate_recordset json_to_record
json_to_recordset json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg
jsonb_object_keys jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_populate_record
jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof justify_days
justify_hours justify_interval lag last_value lastval lcm lead least left length ln localtime localtimestamp log log10 lower lpad ltrim
make_date make_interval make_time make_timestamp make_timestamptz max md5 min mod mode nextval now nth_value ntile nullif num_nonnulls
num_nulls numrange obj_description octet_length overlay percent_rank percentile_cont percentile_disc pg_advisory_xact_lock
pg_advisory_xact_lock_shared pg_backend_pid pg_column_size pg_database_size pg_get_constraintdef pg_get_expr pg_get_functiondef
pg_get_indexdef pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_is_in_recovery pg_notify pg_relation_size pg_size_pretty pg_sleep
pg_table_is_visible pg_table_size pg_total_relation_size pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared pg_typeof phraseto_tsquery
pi plainto_tsquery position power quote_ident quote_literal quote_nullable radians random range_agg rank regexp_count
regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr regr_slope repeat replace
reverse right round row_number row_to_json rpad rtrim setval setweight sha224 sha256 sha384 sha512 sign sin split_part sqrt
starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array string_to_table strpos substr substring sum tan
timeofday to_char to_date to_json to_jsonb to_number to_regclass to_timestamp to_tsquery to_tsvector transaction_timestamp translate trim
trim_array trunc ts_headline ts_rank ts_rank_cd tsrange tstzrange daterange int4range int8range tsvector_to_array txid_current unistr
unnest upper uuid_generate_v4 uuid_generate_v7 uuidv4 uuidv7 var_pop var_samp variance version websearch_to_tsquery width_bucket xmlagg`;

const HARMLESS_BEFORE_PARENTHESIS: ReadonlySet<string> = new Set(`${NO_CALLS} ${CALLS}`.toUpperCase().split(/\s+/));

const BEFORE_TABLE = new Set(['INTO', 'AS', 'WITH', 'RECURSIVE']);

/** In longer texts, and in those with more tokens, nothing is looked for. */
const TEXT_MAX_CHARACTERS = 65_536;
const TOKENS_MAX = 8_192;
/** So far behind `set_config(` its end is looked for. */
const CALL_MAX_TOKENS = 256;

const UNKNOWN: SideEffects = { isClean: false, readsSequences: true, changesDefaults: false, isPlain: false };

/**
 * Tells by a statement's text whether its session has to be reset before somebody else gets it. When in doubt, yes: a
 * command or function that is not known to be harmless is a doubt. What triggers, views and operators call is not seen.
 */
export function sideEffectsOf(sql: string): SideEffects {
  if (sql.length > TEXT_MAX_CHARACTERS) return UNKNOWN;
  const parts = partsOf(sql);
  if (parts === undefined) return UNKNOWN;
  const command = parts[0]?.text ?? '';
  const isPlain = PLAIN.has(command);
  const isKnown = isPlain || HARMLESS.has(command) || (command === 'SET' && SET_LOCAL.has(parts[1]?.text ?? ''));
  return {
    isPlain,
    isClean: isKnown && !parts.some((part) => isTemporary(sql, part)) && parts.every((_, at) => isHarmless(parts, at)),
    changesDefaults: command === 'ALTER' && DEFAULTS_OF.has(parts[1]?.text ?? ''),
    // What a `DO` runs is a string, and a name may be in quotes.
    readsSequences: parts.some(
      ({ kind, start, end }) => (isIdentifier(kind) || command === 'DO') && SEQUENCE_READ.test(sql.slice(start, end)),
    ),
  };
}

/** The side effects of statements that belong together; of all of them no more is read than of a single one. */
export class SideEffectsMemory {
  readonly #known = new Map<string, SideEffects>();
  #room = TEXT_MAX_CHARACTERS;

  of(sql: string): SideEffects {
    const known = this.#known.get(sql);
    if (known !== undefined) return known;
    this.#room -= sql.length;
    // Nor is it remembered: V8 tells long texts of one length apart by comparing them, each with all others.
    if (this.#room < 0) return UNKNOWN;
    const sideEffects = sideEffectsOf(sql);
    this.#known.set(sql, sideEffects);
    return sideEffects;
  }
}

interface Part {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Of words in upper case, of operators and punctuation as they are; of everything else nothing. */
  readonly text: string;
}

/** @returns undefined for more than are looked at */
function partsOf(sql: string): readonly Part[] | undefined {
  const parts: Part[] = [];
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    if (parts.length === TOKENS_MAX) return undefined;
    const { kind, start, end } = lexer;
    parts.push({ kind, start, end, text: textOf(sql, lexer) });
  }
  return parts;
}

function textOf(sql: string, { kind, start, end }: Lexer): string {
  if (kind === Token.Word) return sql.slice(start, end).toUpperCase();
  return kind === Token.Operator || kind === Token.Punctuation ? sql.slice(start, end) : '';
}

/** Whether it says that something is temporary, or names the schema in which it then is. */
function isTemporary(sql: string, { kind, text, start, end }: Part): boolean {
  return isQuotedIdentifier(kind) ? QUOTED_TEMPORARY.test(sql.slice(start, end)) : TEMPORARY.test(text);
}

/** Whether a parenthesis that opens here calls nothing, or what is known to be harmless. */
function isHarmless(parts: readonly Part[], at: number): boolean {
  const name = parts[at - 1];
  if (parts[at]?.text !== '(' || name === undefined || !isIdentifier(name.kind)) return true;
  const start = startOfName(parts, at - 1);
  const before = parts[start - 1]?.text;
  // A table with its columns: INSERT INTO t (…), … AS t (…), WITH t (…) AS …
  if (before !== undefined && BEFORE_TABLE.has(before)) return true;
  if (name.kind !== Token.Word) return false;
  if (name.text === 'SET_CONFIG') return isLocal(parts, at);
  const isOurs = start === at - 1 || (start === at - 3 && parts[start]?.text === 'PG_CATALOG');
  return isOurs && HARMLESS_BEFORE_PARENTHESIS.has(name.text);
}

/** Where a name begins that may be qualified. */
function startOfName(parts: readonly Part[], end: number): number {
  let start = end;
  while (parts[start - 1]?.text === '.') start -= 2;
  return Math.max(0, start);
}

/** `set_config(…, true)` ends with the transaction. */
function isLocal(parts: readonly Part[], open: number): boolean {
  let depth = 0;
  for (let at = open; at < Math.min(parts.length, open + CALL_MAX_TOKENS); at += 1) {
    const text = parts[at]?.text;
    if (text === '(') depth += 1;
    else if (text === ')') depth -= 1;
    if (depth === 0) return parts[at - 1]?.text === 'TRUE' && parts[at - 2]?.text === ',';
  }
  return false;
}
