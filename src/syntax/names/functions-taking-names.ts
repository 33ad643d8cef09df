/**
 * What a string literal contains, if it is not data.
 * - `sql`: SQL, or a name in SQL's syntax (a function's body, `'public.users'` for regclass)
 * - `schema`: the name of one schema, in SQL's syntax
 * - `name`: the name of one schema, without quotes
 * - `path`: a list of schemas, as in the setting search_path
 * - `database`: the name of the database, without quotes
 */
export type LiteralMeaning = 'sql' | 'schema' | 'name' | 'path' | 'database';

/** The meanings of literals among a function's arguments, by position. */
export type Arguments = readonly (LiteralMeaning | undefined)[];

/** A parenthesis or bracket that is open at the current token. */
export interface Call {
  /** The meanings of literals in it; undefined for functions whose arguments are data. */
  meanings: Arguments | undefined;
  /** Whether the parenthesis only groups an expression. */
  readonly grouping: boolean;
  /** Index of the current argument. */
  argument: number;
}

/** `CAST('…' AS regclass)`: the type decides. */
export const CAST: Arguments = [];
/** `set_config('search_path', …)`: the first argument decides about the second. */
export const SET_CONFIG: Arguments = [];
export const SET_SEARCH_PATH: Arguments = [undefined, 'path'];
/** `format('…')`: SQL inside EXECUTE, data elsewhere. */
export const FORMAT: Arguments = [];
/** `nspname IN ('public', …)`: all literals are names of schemas. */
export const SCHEMAS: Arguments = [];
/** `nspname = ANY ($1)`: the parameter is an array of names. */
export const SCHEMA_ARRAY: Arguments = [];
/** `to_tsvector('public.english', …)`: the first argument is a name if there is a second. */
export const CONFIGURED: Arguments = [];

const RELATION: Arguments = ['sql'];
const PRIVILEGE: Arguments = ['sql', 'sql'];

/** Functions of pg_catalog that take names as literals: as reg* types or as text. */
const FUNCTIONS = new Map<string, Arguments>([
  ['cast', CAST],
  ['set_config', SET_CONFIG],
  ['format', FORMAT],
  ...named(CONFIGURED, 'to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery'),
  ...named(RELATION, 'nextval currval setval pg_get_serial_sequence pg_sequence_last_value pg_get_viewdef row_security_active'),
  ...named(RELATION, 'to_regclass to_regtype to_regtypemod to_regproc to_regprocedure to_regoper to_regoperator to_regcollation'),
  ...named(RELATION, 'pg_relation_size pg_table_size pg_indexes_size pg_total_relation_size pg_relation_filepath pg_relation_filenode'),
  ...named(RELATION, 'pg_relation_is_updatable pg_column_is_updatable pg_relation_is_publishable pg_index_has_property'),
  ...named(RELATION, 'pg_index_column_has_property pg_get_replica_identity_index pg_partition_tree pg_partition_root'),
  ...named(RELATION, 'pg_partition_ancestors brin_summarize_new_values brin_summarize_range brin_desummarize_range'),
  ...named(RELATION, 'gin_clean_pending_list table_to_xml table_to_xmlschema table_to_xml_and_xmlschema query_to_xml ts_stat'),
  ...named(RELATION, 'ts_lexize ts_parse ts_token_type pg_basetype'),
  ...named(PRIVILEGE, 'has_table_privilege has_column_privilege has_any_column_privilege has_sequence_privilege'),
  ...named(PRIVILEGE, 'has_function_privilege has_type_privilege'),
  ['tsvector_update_trigger', [undefined, 'sql']],
  ['has_schema_privilege', ['name', 'name']],
  ['to_regnamespace', ['schema']],
  ...named(['name'], 'schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema'),
]);

function named(meanings: Arguments, names: string): [string, Arguments][] {
  return names.split(' ').map((name) => [name, meanings]);
}

/** Types to which a literal with a name is cast: `'public.users'::regclass`. */
const TYPES = new Map<string, LiteralMeaning>([
  ['regclass', 'sql'],
  ['regtype', 'sql'],
  ['regproc', 'sql'],
  ['regprocedure', 'sql'],
  ['regoper', 'sql'],
  ['regoperator', 'sql'],
  ['regcollation', 'sql'],
  ['regconfig', 'sql'],
  ['regdictionary', 'sql'],
  ['regnamespace', 'schema'],
]);

/** @param name folded to lower case */
export const argumentsOf = (name: string): Arguments | undefined => FUNCTIONS.get(name);
/** @param name folded to lower case */
export const meaningOfType = (name: string): LiteralMeaning | undefined => TYPES.get(name);

/** Types to which a literal may be cast first: `('public.s'::text)::regclass`. */
export const isTextType = (name: string): boolean => name === 'text' || name === 'varchar' || name === 'name';
