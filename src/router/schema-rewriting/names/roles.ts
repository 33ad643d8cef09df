/**
 * What a string literal can mean for a place, besides data: `sql`: SQL, or names as SQL writes them (`'public.users'`
 * for regclass, a function's body); `schema`: one schema, as SQL writes it; `name`: one schema, to the letter;
 * `path`: a list of schemas, as the setting search_path holds it; `database`: the name of the database, to the letter.
 */
export type Role = 'sql' | 'schema' | 'name' | 'path' | 'database';

/** Roles of a function's arguments, by position. */
export type Arguments = readonly (Role | undefined)[];

/** An open parenthesis or bracket. */
export interface Call {
  /** What literals in it mean; undefined for functions without names among their arguments. */
  roles: Arguments | undefined;
  /** A parenthesis that only groups. */
  readonly grouping: boolean;
  /** Index of the argument being read. */
  argument: number;
}

/** `CAST('…' AS regclass)`: what stands behind decides. */
export const CAST: Arguments = [];
/** `set_config('search_path', …)`: the first argument decides about the second. */
export const SET_CONFIG: Arguments = [];
export const SET_SEARCH_PATH: Arguments = [undefined, 'path'];
/** `format('…')`: what EXECUTE runs, data elsewhere. */
export const FORMAT: Arguments = [];
/** `nspname IN ('public', …)`: all of them are names. */
export const SCHEMAS: Arguments = [];
/** `nspname = ANY ($1)`: an array of names. */
export const SCHEMA_ARRAY: Arguments = [];
/** `to_tsvector('public.english', …)`: the first argument is a name if there is a second. */
export const CONFIGURED: Arguments = [];

const RELATION: Arguments = ['sql'];
const PRIVILEGE: Arguments = ['sql', 'sql'];

/** Functions of pg_catalog whose literals are names: those that take reg* types, and those that take names as text. */
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

function named(roles: Arguments, names: string): [string, Arguments][] {
  return names.split(' ').map((name) => [name, roles]);
}

/** Types that a literal becomes a name by: `'public.users'::regclass`. */
const TYPES = new Map<string, Role>([
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
export const roleOfType = (name: string): Role | undefined => TYPES.get(name);

/** Types that a literal may pass through on its way to another: `('public.s'::text)::regclass`. */
export const isTextType = (name: string): boolean => name === 'text' || name === 'varchar' || name === 'name';
