import type { Policy, Schema, SchemaTable, Sequence } from '../../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier } from '../../../quoting/quote-identifier.ts';
import { columnDefinition } from './column-ddl.ts';
import { commentOn, withOptions } from './comment-and-with-clauses.ts';
import { createSequence, ownSequence } from './sequence-ddl.ts';

/** The statements that make a table or view again, in the order in which they may run. */
export interface TableDdl {
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
  const { columns, primaryKey, unique, exclusions, checks, partitionKey, partitionOf, isUnlogged, options } = table;
  const sequenceOf = (column: string) => sequences.find(({ ownedBy }) => ownedBy?.column === column);
  const constraints = [...(primaryKey === null ? [] : [primaryKey]), ...unique, ...exclusions, ...checks];
  const lines = [
    ...columns.map((column) => columnDefinition(column, sequenceOf(column.name), partitionOf !== null)),
    ...constraints.map(({ name, definition }) => `CONSTRAINT ${quoteIdentifier(name)} ${definition}`),
  ];
  const body = lines.length === 0 ? '()' : `(\n  ${lines.join(',\n  ')}\n)`;
  const partitions = partitionKey === null ? '' : ` PARTITION BY ${partitionKey}`;
  return `CREATE ${isUnlogged ? 'UNLOGGED ' : ''}TABLE ${nameOf(table)} ${body}${partitions}${withOptions(options)};`;
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
    .map(({ name, definition }) => `ALTER TABLE ${nameOf(table)} ADD CONSTRAINT ${quoteIdentifier(name)} ${definition};`);
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
