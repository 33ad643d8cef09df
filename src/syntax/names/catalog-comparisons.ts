import { Code } from '../tokens/characters.ts';
import { Token } from '../tokens/scanner.ts';
import { type Arguments, SCHEMA_ARRAY, SCHEMAS } from './functions-taking-names.ts';
import type { Scope } from './scope.ts';

/** Columns of the catalogs and of information_schema that hold names of schemas. */
const SCHEMA_COLUMNS = new Set(
  `nspname schemaname schema_name table_schema view_schema constraint_schema unique_constraint_schema sequence_schema domain_schema
  routine_schema specific_schema trigger_schema event_object_schema udt_schema object_schema parameter_schema`.split(/\s+/),
);

/** Shows that a statement reads the catalogs. Otherwise a column of such a name may belong to one of the organization's tables. */
const CATALOG =
  /\binformation_schema\b|\bpg_(?:catalog|namespace|tables|views|matviews|indexes|sequences|policies|stats|stat_\w+|statio_\w+)\b/i;
/** Longer texts are not searched for the catalogs. */
const TEXT_MAX_CHARACTERS = 65_536;

const COMPARISONS = new Set(['=', '<>', '!=', '~~', '!~~']);
/** The pattern that psql sends for `\d public.users`. */
const PSQL_PATTERN = '^(public)$';

/** Whether the current literal is compared with the name of a schema: `nspname = 'public'`. */
export function namesSchema(scope: Scope): boolean {
  const { last, second, lexer } = scope;
  if (last.kind === Token.Operator) return COMPARISONS.has(lexer.text.slice(last.start, last.end)) && isSchemaColumn(scope, second);
  if (scope.isOneOf(last, ['like', 'ilike'])) return isSchemaColumn(scope, scope.isWord(second, 'not') ? scope.third : second);
  return scope.isPunctuation(last, Code.Close) && lexer.text.startsWith(PSQL_PATTERN, lexer.start + 1) && readsCatalogs(scope);
}

/** Whether the current literal is compared with the name of a database: `datname = 'org_…'`. */
export function namesDatabase(scope: Scope): boolean {
  const { last, second, lexer } = scope;
  return last.kind === Token.Operator && lexer.text.slice(last.start, last.end) === '=' && scope.nameOf(second) === 'datname';
}

/** The list of schemas that the current parenthesis opens: `nspname IN ('public', 'other')`, `nspname = ANY ($1)`; undefined for others. */
export function listOfSchemas(scope: Scope): Arguments | undefined {
  const { last, second, third } = scope;
  if (scope.isWord(last, 'in') && isSchemaColumn(scope, scope.isWord(second, 'not') ? third : second)) return SCHEMAS;
  if (!scope.isOneOf(last, ['any', 'all']) || second.kind !== Token.Operator) return undefined;
  return isSchemaColumn(scope, third) ? SCHEMA_ARRAY : undefined;
}

/**
 * An expression that replaces the current parameter and turns the value `public` into the schema. It has the parameter's type,
 * which follows from the comparison, or from a cast after the parameter.
 */
export function schemaParameter(scope: Scope, isArray: boolean, schema: string): string {
  const { text, start, end } = scope.lexer;
  CAST.lastIndex = end;
  const type = CAST.exec(text)?.[1] ?? 'pg_catalog.name';
  const parameter = `${text.slice(start, end)}::${type}`;
  if (isArray) return `pg_catalog.array_replace(${parameter}[], 'public', '${schema}')`;
  return `(CASE WHEN ${parameter} OPERATOR(pg_catalog.=) 'public' THEN '${schema}' ELSE ${parameter} END)`;
}

/** `::text`, `::text[]` */
const CAST = /\s*::\s*(\w+)/y;

function isSchemaColumn(scope: Scope, span: Scope['last']): boolean {
  return SCHEMA_COLUMNS.has(scope.nameOf(span)) && readsCatalogs(scope);
}

function readsCatalogs({ lexer: { text } }: Scope): boolean {
  return text.length <= TEXT_MAX_CHARACTERS && CATALOG.test(text);
}

/** The offset of `public` in such a literal; -1 if it names another schema. */
export function publicIn(text: string): number {
  if (text === 'public') return 0;
  return text === PSQL_PATTERN ? PSQL_PATTERN.indexOf('public') : -1;
}
