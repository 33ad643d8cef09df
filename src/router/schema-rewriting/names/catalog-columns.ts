import { Code } from '../../../syntax/characters.ts';
import { Token } from '../../../syntax/scanner.ts';
import { type Arguments, SCHEMA_ARRAY, SCHEMAS } from './roles.ts';
import type { Scope } from './scope.ts';

/** Columns of the catalogs and of information_schema that hold names of schemas. */
const SCHEMA_COLUMNS = new Set(
  `nspname schemaname schema_name table_schema view_schema constraint_schema unique_constraint_schema sequence_schema domain_schema
  routine_schema specific_schema trigger_schema event_object_schema udt_schema object_schema parameter_schema`.split(/\s+/),
);

/** What says that a statement reads the catalogs: a table of the organization's own may have a column of such a name. */
const CATALOG =
  /\binformation_schema\b|\bpg_(?:catalog|namespace|tables|views|matviews|indexes|sequences|policies|stats|stat_\w+|statio_\w+)\b/i;
/** In longer texts nothing is looked for. */
const TEXT_MAX_CHARACTERS = 65_536;

const COMPARISONS = new Set(['=', '<>', '!=', '~~', '!~~']);
/** As psql asks for `\d public.users`. */
const PSQL_PATTERN = '^(public)$';

/** Whether the literal, at which the scope stands, is compared with the name of a schema: `nspname = 'public'`. */
export function namesSchema(scope: Scope): boolean {
  const { last, second, lexer } = scope;
  if (last.kind === Token.Operator) return COMPARISONS.has(lexer.text.slice(last.start, last.end)) && isSchemaColumn(scope, second);
  if (scope.isOneOf(last, ['like', 'ilike'])) return isSchemaColumn(scope, scope.isWord(second, 'not') ? scope.third : second);
  return scope.isMark(last, Code.Close) && lexer.text.startsWith(PSQL_PATTERN, lexer.start + 1) && readsCatalogs(scope);
}

/** Whether it is compared with the name of a database: `datname = 'org_…'`. */
export function namesDatabase(scope: Scope): boolean {
  const { last, second, lexer } = scope;
  return last.kind === Token.Operator && lexer.text.slice(last.start, last.end) === '=' && scope.nameOf(second) === 'datname';
}

/** What the parenthesis, at which the scope stands, opens: `nspname IN ('public', 'other')`, `nspname = ANY ($1)`; or undefined. */
export function listOfSchemas(scope: Scope): Arguments | undefined {
  const { last, second, third } = scope;
  if (scope.isWord(last, 'in') && isSchemaColumn(scope, scope.isWord(second, 'not') ? third : second)) return SCHEMAS;
  if (!scope.isOneOf(last, ['any', 'all']) || second.kind !== Token.Operator) return undefined;
  return isSchemaColumn(scope, third) ? SCHEMA_ARRAY : undefined;
}

/**
 * What takes the place of a parameter, at which the scope stands, so that `public` becomes the schema: of the type that the
 * parameter has by its comparison, or by the cast behind it.
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

/** Where in such a literal the schema's name stands; -1 where it names another. */
export function publicIn(text: string): number {
  if (text === 'public') return 0;
  return text === PSQL_PATTERN ? PSQL_PATTERN.indexOf('public') : -1;
}
