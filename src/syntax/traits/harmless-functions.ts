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
export const READ_ONLY_NAMES = setOf(`${QUERY_KEYWORDS} ${COMPUTING_FUNCTIONS}`);
/** Names, in lower case, that may precede a parenthesis in a statement that leaves nothing in its session. */
export const STATELESS_NAMES = setOf(`${QUERY_KEYWORDS} ${OTHER_KEYWORDS} ${COMPUTING_FUNCTIONS} ${STATELESS_FUNCTIONS}`);
/** Built-in functions, in lower case: the usual ones, none of which leaves anything in its session. */
export const USUAL_FUNCTIONS = setOf(`${COMPUTING_FUNCTIONS} ${STATELESS_FUNCTIONS}`);
