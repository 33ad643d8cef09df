import type {
  NotNull,
  Policy,
  Routine,
  Schema,
  SchemaCollation,
  SchemaColumn,
  SchemaTable,
  SchemaType,
  Sequence,
} from '../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier, quoteLiteral } from '../../quoting.ts';

interface Piece {
  /** How others mention it, and what is made with it. */
  readonly names: readonly string[];
  readonly statements: readonly string[];
  /** Where it mentions what must be there before. */
  readonly mentions: string;
}

const UNORDERED = 'SET check_function_bodies = off;\nSET client_min_messages = warning;';
const ALWAYS_THERE = 'plpgsql';

/** The statements that make everything again in an empty database, without rows, owners and privileges. */
export function schemaDdl(schema: Schema): string {
  const tables = schema.tables.flatMap((table) => {
    const ddl = tableDdl(table, schema);
    return ddl === undefined ? [] : [{ table, ddl }];
  });
  const owned = new Set(tables.flatMap(({ ddl }) => ddl.sequences));
  const pieces: readonly Piece[] = [
    ...schema.collations.map((collation) => piece([nameOf(collation)], collationDdl(collation))),
    ...schema.types.map((type) => piece([nameOf(type), ...multirangeOf(type)], typeDdl(type))),
    ...schema.sequences
      .filter((sequence) => sequence.ownedBy === null || owned.has(createSequence(sequence)))
      .map((sequence) => piece([nameOf(sequence)], [createSequence(sequence)])),
    ...schema.functions.map((routine) =>
      piece(
        [nameOf(routine)],
        functionDdl(routine),
        // Bodies are not read when functions are made, except those that are parsed then.
        `${routine.arguments} ${routine.returns} ${/^BEGIN ATOMIC$|^RETURN /m.test(routine.definition ?? '') ? routine.definition : ''}`,
      ),
    ),
    ...tables.map(({ table, ddl }) => piece([nameOf(table)], [ddl.create])),
  ];
  const all = (part: 'indexes' | 'foreignKeys' | 'attach' | 'rest') => tables.flatMap(({ ddl }) => ddl[part]);
  const groups = [
    ...schema.schemas.filter(({ name }) => name !== 'public').map(({ name }) => [`CREATE SCHEMA ${quoteIdentifier(name)};`]),
    ...schema.extensions.filter(({ name }) => name !== ALWAYS_THERE).map(extension),
    ...inOrder(pieces).map(({ statements }) => statements),
    all('indexes'),
    all('foreignKeys'),
    all('attach'),
    all('rest'),
  ];
  const text = groups.filter((statements) => statements.length > 0).map((statements) => statements.join('\n'));
  return `${[UNORDERED, ...text].join('\n\n')}\n`;
}

function piece(names: readonly string[], statements: readonly string[], mentions = statements.join('\n')): Piece {
  return { names, statements, mentions };
}

function extension({ name, schema }: Schema['extensions'][number]): readonly string[] {
  return [`CREATE EXTENSION IF NOT EXISTS ${quoteIdentifier(name)} SCHEMA ${quoteIdentifier(schema)};`];
}

/** Each after those that it mentions. Of those that mention each other, the order stays. */
function inOrder(pieces: readonly Piece[]): readonly Piece[] {
  const byName = new Map<string, Piece[]>();
  for (const one of pieces) for (const name of one.names) byName.set(name, [...(byName.get(name) ?? []), one]);
  const done = new Set<Piece>();
  const visit = (one: Piece) => {
    if (done.has(one)) return;
    done.add(one);
    for (const name of mentioned(one.mentions)) for (const other of byName.get(name) ?? []) visit(other);
    ordered.push(one);
  };
  const ordered: Piece[] = [];
  for (const one of pieces) visit(one);
  return ordered;
}

/** One name, or two with a point between them. */
const NAMES = /(?:"(?:[^"]|"")+"|[\p{L}_][\p{L}\p{N}_$]*)(\.(?:"(?:[^"]|"")+"|[\p{L}_][\p{L}\p{N}_$]*))?/gu;

function mentioned(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(NAMES)].flatMap(([names, second]) => (second === undefined ? [] : [names])));
}

/** The statements that make a table or view again, in the order in which they may run. */
interface TableDdl {
  /** Sequences that belong to its columns; those of identities are made with the columns. */
  readonly sequences: readonly string[];
  readonly create: string;
  readonly indexes: readonly string[];
  /** What refers to other tables, so that tables may refer to each other. */
  readonly foreignKeys: readonly string[];
  /** To what it is a part of. */
  readonly attach: readonly string[];
  readonly rest: readonly string[];
}

/** @returns undefined for a foreign table: where its rows are is nothing that the API shows */
export function tableDdl(table: SchemaTable, schema: Schema): TableDdl | undefined {
  if (table.kind === 'foreign table') return undefined;
  const own = schema.sequences.filter(({ ownedBy }) => ownedBy?.schema === table.schema && ownedBy.table === table.name);
  const sequences = own.filter(({ ownedBy }) => identityOf(table, ownedBy?.column) === null);
  const parent = parentOf(table, schema);
  return {
    sequences: sequences.map(createSequence),
    create: table.definition === null ? createTable(table, own) : createView(table),
    indexes: standaloneIndexes(table).map(({ definition }) => `${definition};`),
    foreignKeys: foreignKeys(table, parent),
    attach: attachments(table),
    rest: [
      ...sequences.flatMap((sequence) => ownSequence(sequence) ?? []),
      ...triggers(table, parent),
      ...rowSecurity(table),
      ...table.policies.map((policy) => createPolicy(table, policy)),
      ...comments(table),
    ],
  };
}

/** The statements as one text. */
export function tableDdlText(ddl: TableDdl): string {
  const { sequences, create, indexes, foreignKeys, attach, rest } = ddl;
  const parts = [sequences, [create], indexes, foreignKeys, attach, rest].filter((part) => part.length > 0);
  return `${parts.map((part) => part.join('\n')).join('\n\n')}\n`;
}

function identityOf(table: SchemaTable, column: string | undefined) {
  return table.columns.find(({ name }) => name === column)?.identity ?? null;
}

function parentOf({ partitionOf }: SchemaTable, { tables }: Schema): SchemaTable | undefined {
  return tables.find(({ schema, name }) => schema === partitionOf?.schema && name === partitionOf.name);
}

function createTable(table: SchemaTable, sequences: readonly Sequence[]): string {
  const { columns, primaryKey, unique, exclusions, checks, notNulls, partitionKey, isUnlogged, options } = table;
  const sequenceOf = (column: string) => sequences.find(({ ownedBy }) => ownedBy?.column === column);
  const validated = checks.filter(({ definition }) => !NOT_VALID.test(definition));
  const constraints = [...(primaryKey === null ? [] : [primaryKey]), ...unique, ...exclusions, ...validated];
  const lines = [
    ...columns.map((column) => columnDefinition(table, column, sequenceOf(column.name))),
    ...constraints.map(({ name, definition }) => `CONSTRAINT ${quoteIdentifier(name)} ${definition}`),
  ];
  const body = lines.length === 0 ? '()' : `(\n  ${lines.join(',\n  ')}\n)`;
  const partitions = partitionKey === null ? '' : ` PARTITION BY ${partitionKey}`;
  const create = `CREATE ${isUnlogged ? 'UNLOGGED ' : ''}TABLE ${nameOf(table)} ${body}${partitions}${withOptions(options)};`;
  // A new table has no rows, so that CREATE TABLE takes such constraints for validated.
  const later = [...checks, ...notNulls].filter(({ definition }) => NOT_VALID.test(definition));
  return [create, ...later.map(({ name, definition }) => addConstraint(table, name, definition))].join('\n');
}

const NOT_VALID = / NOT VALID$/;

function addConstraint(table: SchemaTable, name: string, definition: string): string {
  return `ALTER TABLE ${nameOf(table)} ADD CONSTRAINT ${quoteIdentifier(name)} ${definition};`;
}

function createView(table: SchemaTable): string {
  const kind = table.kind === 'view' ? 'VIEW' : 'MATERIALIZED VIEW';
  const defaults = table.columns.filter((column) => column.default !== null);
  const statements = [
    `CREATE ${kind} ${nameOf(table)}${withOptions(table.options)} AS\n${table.definition ?? ''}`,
    ...defaults.map((column) => `ALTER VIEW ${nameOf(table)} ALTER COLUMN ${quoteIdentifier(column.name)} SET DEFAULT ${column.default};`),
  ];
  return statements.join('\n');
}

/** Those that no constraint makes: an index of a constraint has its name. */
function standaloneIndexes({ indexes, primaryKey, unique, exclusions }: SchemaTable) {
  const names = new Set([primaryKey, ...unique, ...exclusions].map((constraint) => constraint?.name));
  return indexes.filter(({ name }) => !names.has(name));
}

/** A partition gets those of the whole table when it is attached. */
function foreignKeys(table: SchemaTable, parent: SchemaTable | undefined): readonly string[] {
  const isInherited = (name: string, definition: string) =>
    parent?.foreignKeys.some((key) => key.name === name && key.definition === definition) ?? false;
  return table.foreignKeys
    .filter(({ name, definition }) => !isInherited(name, definition))
    .map(({ name, definition }) => addConstraint(table, name, definition));
}

function attachments(table: SchemaTable): readonly string[] {
  const { partitionOf, inherits } = table;
  if (partitionOf !== null) {
    const whole = qualifiedName(partitionOf.schema, partitionOf.name);
    return [`ALTER TABLE ${whole} ATTACH PARTITION ${nameOf(table)} ${partitionOf.bound};`];
  }
  return inherits.map(({ schema, name }) => `ALTER TABLE ${nameOf(table)} INHERIT ${qualifiedName(schema, name)};`);
}

/** A partition gets those of the whole table when it is attached. */
function triggers(table: SchemaTable, parent: SchemaTable | undefined): readonly string[] {
  const inherited = new Set(parent?.triggers.filter(({ definition }) => / FOR EACH ROW /.test(definition)).map(({ name }) => name));
  return table.triggers.flatMap(({ name, definition, isEnabled }) => [
    ...(inherited.has(name) ? [] : [`${definition};`]),
    ...(isEnabled ? [] : [`ALTER TABLE ${nameOf(table)} DISABLE TRIGGER ${quoteIdentifier(name)};`]),
  ]);
}

function rowSecurity(table: SchemaTable): readonly string[] {
  return [
    ...(table.rowSecurity ? [`ALTER TABLE ${nameOf(table)} ENABLE ROW LEVEL SECURITY;`] : []),
    ...(table.isRowSecurityForced ? [`ALTER TABLE ${nameOf(table)} FORCE ROW LEVEL SECURITY;`] : []),
  ];
}

function createPolicy(table: SchemaTable, { name, command, roles, isPermissive, using, check }: Policy): string {
  return `${[
    `CREATE POLICY ${quoteIdentifier(name)} ON ${nameOf(table)}`,
    ...(isPermissive ? [] : ['AS RESTRICTIVE']),
    `FOR ${command.toUpperCase()}`,
    `TO ${roles.map((role) => (role === 'public' ? 'PUBLIC' : quoteIdentifier(role))).join(', ')}`,
    ...(using === null ? [] : [`USING (${using})`]),
    ...(check === null ? [] : [`WITH CHECK (${check})`]),
  ].join(' ')};`;
}

function comments(table: SchemaTable): readonly string[] {
  const kind = { view: 'VIEW', 'materialized view': 'MATERIALIZED VIEW' }[table.kind as string] ?? 'TABLE';
  return [
    ...(table.comment === null ? [] : [commentOn(`${kind} ${nameOf(table)}`, table.comment)]),
    ...table.columns.flatMap(({ name, comment }) =>
      comment === null ? [] : [commentOn(`COLUMN ${nameOf(table)}.${quoteIdentifier(name)}`, comment)],
    ),
  ];
}

function nameOf({ schema, name }: { readonly schema: string; readonly name: string }): string {
  return qualifiedName(schema, name);
}

/** @param sequence the one of its identity */
function columnDefinition(table: SchemaTable, column: SchemaColumn, sequence: Sequence | undefined): string {
  const { name, type, collation, notNull } = column;
  const constraint = table.notNulls.find((one) => one.column === name);
  return [
    quoteIdentifier(name),
    type,
    ...(collation === null ? [] : [`COLLATE ${collation}`]),
    ...valueSource(column, sequence, table.partitionOf !== null),
    ...(notNull ? [notNullClause(table, constraint)] : []),
  ].join(' ');
}

/** The constraint has a name of its own since PostgreSQL 18; where it is as by default it is left out. */
function notNullClause({ name: table }: SchemaTable, constraint: NotNull | undefined): string {
  if (constraint === undefined) return 'NOT NULL';
  const { name, column, definition } = constraint;
  const named = name === `${table}_${column}_not_null` ? '' : `CONSTRAINT ${quoteIdentifier(name)} `;
  return `${named}NOT NULL${/ NO INHERIT$/.test(definition) ? ' NO INHERIT' : ''}`;
}

function valueSource(column: SchemaColumn, sequence: Sequence | undefined, isPartition: boolean): readonly string[] {
  const { identity, generated, generation } = column;
  if (generated !== null) return [`GENERATED ALWAYS AS (${generated}) ${generation === 'virtual' ? 'VIRTUAL' : 'STORED'}`];
  // A partition has the identity of the whole table, and may have none before it is attached.
  if (identity !== null && !isPartition) return [`GENERATED ${identity.toUpperCase()} AS IDENTITY${identityOptions(column, sequence)}`];
  return column.default === null ? [] : [`DEFAULT ${column.default}`];
}

function identityOptions({ name }: SchemaColumn, sequence: Sequence | undefined): string {
  if (sequence === undefined) return '';
  const isNamedAsUsual = sequence.name === `${sequence.ownedBy?.table}_${name}_seq` && sequence.schema === sequence.ownedBy?.schema;
  const options = [
    ...(isNamedAsUsual ? [] : [`SEQUENCE NAME ${qualifiedName(sequence.schema, sequence.name)}`]),
    ...sequenceOptions(sequence),
  ];
  return options.length === 0 ? '' : ` (${options.join(' ')})`;
}

const MAXIMA: Readonly<Record<string, bigint>> = { smallint: 32_767n, integer: 2_147_483_647n, bigint: 9_223_372_036_854_775_807n };

export function createSequence(sequence: Sequence): string {
  const options = [...(sequence.type === 'bigint' ? [] : [`AS ${sequence.type}`]), ...sequenceOptions(sequence)];
  return `CREATE SEQUENCE ${[qualifiedName(sequence.schema, sequence.name), ...options].join(' ')};`;
}

/** The clauses that say what is not as by default. */
function sequenceOptions(sequence: Sequence): readonly string[] {
  const { increment, minValue, maxValue, start, cache, isCycling } = sequence;
  const max = MAXIMA[sequence.type] ?? 0n;
  const isAscending = !increment.startsWith('-');
  const [defaultMin, defaultMax] = isAscending ? [1n, max] : [-max - 1n, -1n];
  return [
    ...(increment === '1' ? [] : [`INCREMENT BY ${increment}`]),
    ...(BigInt(minValue) === defaultMin ? [] : [`MINVALUE ${minValue}`]),
    ...(BigInt(maxValue) === defaultMax ? [] : [`MAXVALUE ${maxValue}`]),
    ...(start === (isAscending ? minValue : maxValue) ? [] : [`START WITH ${start}`]),
    ...(cache === '1' ? [] : [`CACHE ${cache}`]),
    ...(isCycling ? ['CYCLE'] : []),
  ];
}

/** It is dropped with the column. @returns undefined when it belongs to none */
export function ownSequence({ schema, name, ownedBy }: Sequence): string | undefined {
  if (ownedBy === null) return undefined;
  const column = `${qualifiedName(ownedBy.schema, ownedBy.table)}.${quoteIdentifier(ownedBy.column)}`;
  return `ALTER SEQUENCE ${qualifiedName(schema, name)} OWNED BY ${column};`;
}

function collationDdl(collation: SchemaCollation): readonly string[] {
  const { definition, comment } = collation;
  const create = `CREATE COLLATION ${nameOf(collation)} ${definition};`;
  return [create, ...(comment === null ? [] : [commentOn(`COLLATION ${nameOf(collation)}`, comment)])];
}

/** The type that is made together with a range. */
function multirangeOf({ kind, definition }: SchemaType): readonly string[] {
  const [, named] = kind === 'range' ? (definition ?? '').split(' MULTIRANGE_TYPE_NAME = ', 2) : [];
  return named === undefined ? [] : [named.replace(/\)$/, '')];
}

export function typeDdl(type: SchemaType): readonly string[] {
  const name = qualifiedName(type.schema, type.name);
  const kind = type.kind === 'domain' ? 'DOMAIN' : 'TYPE';
  return [`CREATE ${kind} ${name} AS ${typeBody(type)};`, ...(type.comment === null ? [] : [commentOn(`${kind} ${name}`, type.comment)])];
}

function typeBody({ kind, labels, definition }: SchemaType): string {
  if (kind === 'enum') return `ENUM (${(labels ?? []).map(quoteLiteral).join(', ')})`;
  if (kind === 'range') return `RANGE ${definition}`;
  return definition ?? '';
}

/** @returns nothing for an aggregate: the API does not show what it is made of */
export function functionDdl(routine: Routine): readonly string[] {
  if (routine.definition === null) return [];
  const kind = routine.kind === 'procedure' ? 'PROCEDURE' : 'FUNCTION';
  const name = `${qualifiedName(routine.schema, routine.name)}(${routine.identityArguments})`;
  return [`${routine.definition.trimEnd()};`, ...(routine.comment === null ? [] : [commentOn(`${kind} ${name}`, routine.comment)])];
}

/** `COMMENT ON … IS …`. @param object its kind and name; undefined: the comment is taken away */
export function commentOn(object: string, comment: string | null): string {
  return `COMMENT ON ${object} IS ${comment === null ? 'NULL' : quoteLiteral(comment)};`;
}

/** Storage parameters and the like, `fillfactor=70` each, as a WITH clause takes them. */
function withOptions(options: readonly string[]): string {
  return options.length === 0 ? '' : ` WITH (${options.map(option).join(', ')})`;
}

function option(text: string): string {
  const at = text.indexOf('=');
  const value = text.slice(at + 1);
  return `${text.slice(0, at)} = ${/^[a-z0-9_]+$/.test(value) ? value : quoteLiteral(value)}`;
}
