import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { CommandError, describeProblem, findOrganization, type Problem } from './organization-api.ts';

const USAGE = `usage: postern types [--kysely] [--schema <name>] [--out <file>]

  writes TypeScript types of the organization's tables, views and enums: rows as /api/query returns them

  --kysely    the interface DB of Kysely (kysely.dev), with values as the driver pg returns them
  --schema    of this schema only
  --out       into this file, in place of standard output

  API_URL and API_KEY name the organization, in the environment or in .env.postern; a key that may read is enough.
  exit codes: 0 done; 1 there is more than a reply holds; 2 it could not begin
`;

interface Column {
  readonly name: string;
  /** As `format_type` writes it, with the schema of a type that is not built in. */
  readonly type: string;
  readonly notNull: boolean;
  readonly default: string | null;
  readonly identity: 'always' | 'by default' | null;
  readonly generated: string | null;
  readonly comment: string | null;
}

interface Named {
  readonly schema: string;
  readonly name: string;
  readonly comment: string | null;
}

interface Table extends Named {
  readonly columns: readonly Column[];
}

interface OwnType extends Named {
  readonly kind: string;
  readonly labels: readonly string[] | null;
  readonly definition: string | null;
}

/** What is needed of `GET /api/schema`. */
interface Schema {
  readonly tables: readonly Table[];
  readonly types: readonly OwnType[];
  readonly isComplete: boolean;
  readonly warnings?: readonly { readonly message: string; readonly hint?: string }[];
}

/**
 * `postern types`.
 * @param words those behind the command
 * @returns the exit code
 */
export async function runTypes(words: readonly string[], environment: Readonly<Record<string, string | undefined>>): Promise<number> {
  const asked = readWords(words);
  if (typeof asked === 'string') {
    process.stderr.write(`postern: ${asked}\n\n${USAGE}`);
    return 2;
  }
  if (asked.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    const api = await findOrganization(environment);
    const query = asked.schema === undefined ? '' : `?schema=${encodeURIComponent(asked.schema)}`;
    const { ok, body } = await api.call('GET', `/api/schema${query}`);
    if (!ok) throw new CommandError(describeProblem(body as Problem));
    const schema = body as Schema;
    for (const { message, hint } of schema.warnings ?? []) process.stderr.write(`warning: ${message}${hint ? `\n  hint: ${hint}` : ''}\n`);
    const text = asked.kysely ? kyselyTypes(schema) : rowTypes(schema);
    if (asked.out === undefined) process.stdout.write(text);
    else await writeFile(asked.out, text).catch((error: Error) => Promise.reject(new CommandError(`${asked.out}: ${error.message}`)));
    return schema.isComplete ? 0 : 1;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    process.stderr.write(`postern: ${error.message}\n`);
    return 2;
  }
}

interface Asked {
  readonly kysely: boolean;
  readonly schema: string | undefined;
  readonly out: string | undefined;
  readonly help: boolean;
}

function readWords(words: readonly string[]): Asked | string {
  try {
    const text = { type: 'string' } as const;
    const options = { kysely: { type: 'boolean' }, schema: text, out: text, help: { type: 'boolean', short: 'h' } } as const;
    const { values } = parseArgs({ args: [...words], options });
    return { kysely: values.kysely === true, schema: values.schema, out: values.out, help: values.help === true };
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

const HEAD = '// Written by postern types, which replaces this file. Migrations change what it describes.\n';
const JSON_TYPE = `/** What a column of type json or jsonb may hold. */
export type Json = string | number | boolean | null | Json[] | { [member: string]: Json };
`;

/** Rows as `/api/query` returns them: http/README.md, "Values". */
export function rowTypes(schema: Schema): string {
  const names = namesOf(schema);
  const typeOf = typesIn(schema, names, HTTP_TYPES, (_, element) => `${element}[]`);
  const tables = schema.tables.map((table) => {
    const columns = table.columns.map((column) => {
      const type = typeOf(column.type);
      return `${commentOf(column.comment, '  ')}  ${property(column.name)}: ${column.notNull ? type : orNull(type)};\n`;
    });
    return `${commentOf(table.comment)}export interface ${names.get(table)} {\n${columns.join('')}}\n`;
  });
  return complete([...enumsOf(schema, names), ...tables]);
}

/** The interface `DB` that Kysely takes, with values as the driver pg reads them. */
export function kyselyTypes(schema: Schema): string {
  const names = namesOf(schema, ['DB', 'ColumnType', 'Generated', 'GeneratedAlways']);
  const typeOf = typesIn(schema, names, KYSELY_TYPES, (written) => {
    const element = KYSELY_ARRAYS.get(written);
    return element === undefined ? 'string' : `${element}[]`;
  });
  const tables = schema.tables.map((table) => {
    const columns = table.columns.map((column) => {
      const written = KYSELY_WRITTEN.get(typeOf(column.type));
      return `${commentOf(column.comment, '  ')}  ${property(column.name)}: ${kyselyColumn(column, typeOf(column.type), written)};\n`;
    });
    return `${commentOf(table.comment)}export interface ${names.get(table)} {\n${columns.join('')}}\n`;
  });
  const members = schema.tables.map((table) => {
    const name = table.schema === 'public' ? table.name : `${table.schema}.${table.name}`;
    return `  ${property(name)}: ${names.get(table)};\n`;
  });
  const all = [...enumsOf(schema, names), ...tables, `export interface DB {\n${members.join('')}}\n`];
  const used = ['ColumnType', 'Generated', 'GeneratedAlways'].filter((name) => all.some((part) => part.includes(`: ${name}<`)));
  return complete(used.length === 0 ? all : [`import type { ${used.join(', ')} } from 'kysely';\n`, ...all]);
}

/** @param written what may be written, where that is more than what is read */
function kyselyColumn({ notNull, default: value, identity, generated }: Column, type: string, written: string | undefined): string {
  const read = notNull ? type : orNull(type);
  if (generated !== null || identity === 'always') return `GeneratedAlways<${read}>`;
  const isOptional = value !== null || identity !== null || !notNull;
  if (written === undefined) return value !== null || identity !== null ? `Generated<${read}>` : read;
  const set = notNull ? written : orNull(written);
  return `ColumnType<${read}, ${isOptional ? `${set} | undefined` : set}, ${set}>`;
}

function complete(parts: readonly string[]): string {
  const needsJson = parts.some((part) => /\bJson\b(?! =)/.test(part.replace(/^export interface Json\b/gm, '')));
  return [HEAD, ...(needsJson ? [JSON_TYPE] : []), ...parts].join('\n');
}

function enumsOf({ types }: Schema, names: ReadonlyMap<Named, string>): string[] {
  return types.flatMap((type) => {
    if (type.kind !== 'enum') return [];
    const labels = (type.labels ?? []).map((label) => JSON.stringify(label)).join(' | ') || 'never';
    return [`${commentOf(type.comment)}export type ${names.get(type)} = ${labels};\n`];
  });
}

/** Of each table and enum: its own in PascalCase, behind that of its schema unless that is `public`. */
function namesOf({ tables, types }: Schema, reserved: readonly string[] = []): ReadonlyMap<Named, string> {
  const taken = new Set(['Json', 'Date', 'Buffer', ...reserved]);
  const names = new Map<Named, string>();
  for (const named of [...types.filter(({ kind }) => kind === 'enum'), ...tables]) {
    const wanted = pascalCase(named.schema === 'public' ? named.name : `${named.schema}_${named.name}`);
    let name = wanted;
    for (let n = 2; taken.has(name); n += 1) name = `${wanted}${n}`;
    taken.add(name);
    names.set(named, name);
  }
  return names;
}

function pascalCase(name: string): string {
  const words = name.match(/[\p{L}\p{N}$]+/gu) ?? [];
  const joined = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
  return /^[\p{L}$]/u.test(joined) ? joined : `_${joined}`;
}

const property = (name: string) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name));
const orNull = (type: string) => (type === 'unknown' ? type : `${type} | null`);
const commentOf = (comment: string | null, indent = '') =>
  comment === null || comment === '' ? '' : `${indent}/** ${comment.replaceAll('*/', '*\\/').replace(/\s+/g, ' ')} */\n`;

/** @returns the TypeScript type of one that `format_type` has written */
function typesIn(
  { types }: Schema,
  names: ReadonlyMap<Named, string>,
  builtIn: ReadonlyMap<string, string>,
  arrayOf: (written: string, element: string) => string,
): (type: string) => string {
  const own = new Map(types.map((type) => [JSON.stringify([type.schema, type.name]), type]));
  const typeOf = (written: string): string => {
    if (written.endsWith('[]')) {
      const element = written.slice(0, -2);
      return arrayOf(withoutModifier(element), typeOf(element));
    }
    const type = own.get(JSON.stringify(identifiersIn(written)));
    if (type?.kind === 'enum') return names.get(type) ?? 'string';
    if (type?.kind === 'domain') return typeOf(baseOf(type.definition ?? ''));
    if (type !== undefined) return 'string';
    return builtIn.get(withoutModifier(written)) ?? 'string';
  };
  return typeOf;
}

/** `timestamp(3) with time zone` is one type for us, and `interval day to second`. */
const withoutModifier = (written: string) => written.replace(/\([^()]*\)/g, '').replace(/^interval .*/, 'interval');

/** Of `schema.name`, with quotes where a name needs them. */
function identifiersIn(written: string): string[] {
  const names = [''];
  const add = (text: string) => names.push(`${names.pop() ?? ''}${text}`);
  const parts = written.split('"');
  for (const [index, part] of parts.entries()) {
    const isQuoted = index % 2 === 1;
    // Two quotes within a name stand for one.
    const isQuote = !isQuoted && part === '' && index > 0 && index < parts.length - 1;
    const [first = '', ...others] = isQuoted ? [part] : part.split('.');
    add(isQuote ? '"' : first);
    names.push(...others);
  }
  return names;
}

const BEHIND_TYPE = / (?:COLLATE|DEFAULT|CONSTRAINT|NOT NULL)\b/;

/** The type that a domain's definition begins with. */
function baseOf(definition: string): string {
  const parts = definition.split('"');
  const last = parts.findIndex((part, index) => index % 2 === 0 && BEHIND_TYPE.test(part));
  if (last < 0) return definition;
  const [end = ''] = parts[last]?.split(BEHIND_TYPE) ?? [];
  return [...parts.slice(0, last), end].join('"');
}

const NUMBERS = ['smallint', 'integer', 'real', 'double precision'];
const of = (types: readonly string[], type: string) => types.map((name) => [name, type] as const);

/** What is no string. */
const HTTP_TYPES: ReadonlyMap<string, string> = new Map([
  ...of(NUMBERS, 'number'),
  ['boolean', 'boolean'],
  ...of(['json', 'jsonb'], 'Json'),
]);

/** What is no string, as pg-types reads it. */
const KYSELY_TYPES: ReadonlyMap<string, string> = new Map([
  ...of([...NUMBERS, 'oid'], 'number'),
  ['boolean', 'boolean'],
  ...of(['json', 'jsonb'], 'Json'),
  ...of(['timestamp with time zone', 'timestamp without time zone', 'date'], 'Date'),
  ['bytea', 'Buffer'],
  ['point', '{ x: number; y: number }'],
  ['interval', '{ toPostgres(): string }'],
]);
/** Whose arrays are read element by element, by the type of the elements; others are text. */
const KYSELY_ARRAYS: ReadonlyMap<string, string> = new Map([
  // Also numeric, whose values alone are strings.
  ...of([...NUMBERS, 'oid', 'numeric'], 'number'),
  ...of(['bigint', 'text', 'character varying', 'character', 'uuid', 'money', 'inet', 'cidr', 'macaddr', 'numrange'], 'string'),
  ...of(['time without time zone', 'time with time zone'], 'string'),
  ...['boolean', 'json', 'jsonb', 'timestamp with time zone', 'timestamp without time zone', 'date', 'bytea', 'point', 'interval'].map(
    (name) => [name, KYSELY_TYPES.get(name) ?? 'string'] as const,
  ),
]);
/** What may be written in place of a value that is read, by the type of that. */
const KYSELY_WRITTEN: ReadonlyMap<string, string> = new Map([
  ['Date', 'Date | string'],
  ['{ x: number; y: number }', 'string'],
  ['{ toPostgres(): string }', 'string'],
]);
