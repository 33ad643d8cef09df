import { signal } from '@preact/signals';
import type { SchemaColumn, SchemaTable } from '../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier } from '../../quoting.ts';
import { begin, change as changeDraft, draft, isOf, outcome } from '../migrations/migrations.ts';
import { commentOn } from './ddl.ts';

/** Where the values of a column come from. */
export type ValueSource = 'none' | 'default' | 'identity' | 'generated';

export interface NewColumn {
  readonly name: string;
  readonly type: string;
  readonly notNull: boolean;
  readonly source: ValueSource;
  /** Of a default, or of a generated column. */
  readonly expression: string;
}

export interface NewTable {
  readonly schema: string;
  readonly name: string;
  readonly columns: readonly (NewColumn & { readonly isKey: boolean })[];
  readonly comment: string;
}

export interface ChangedColumn {
  readonly name: string;
  readonly type: string;
  /** How values become those of the new type; empty: by a cast. */
  readonly using: string;
  readonly notNull: boolean;
  readonly default: string;
  readonly comment: string;
}

interface NewIndex {
  readonly name: string;
  readonly columns: readonly string[];
  readonly expression: string;
  readonly method: string;
  readonly where: string;
  readonly isUnique: boolean;
  readonly isConcurrent: boolean;
}

/** `2025-01-31-add-total-to-orders` */
function migrationName(...words: readonly string[]): string {
  const slug = words.join('-').replaceAll(/[^\p{L}\p{N}]+/gu, '-');
  return `${new Date().toISOString().slice(0, 10)}-${slug}`.slice(0, 80).replace(/-+$/, '').toLowerCase();
}

export function createTable({ schema, name, columns, comment }: NewTable): ProposedMigration {
  const table = qualifiedName(schema, name);
  const keys = columns.filter(({ isKey }) => isKey);
  const [only] = keys;
  const lines = columns.map((column) => `${columnSql(column)}${keys.length === 1 && column === only ? ' PRIMARY KEY' : ''}`);
  if (keys.length > 1) lines.push(`PRIMARY KEY (${keys.map((column) => quoteIdentifier(column.name)).join(', ')})`);
  return {
    name: migrationName('create', name),
    sql: [
      `CREATE TABLE ${table} ${lines.length === 0 ? '()' : `(\n  ${lines.join(',\n  ')}\n)`};`,
      ...(comment === '' ? [] : [commentOn(`TABLE ${table}`, comment)]),
    ].join('\n'),
    rollbackSql: `DROP TABLE ${table};`,
  };
}

export function addColumn(of: SchemaTable, column: NewColumn, comment: string): ProposedMigration {
  const table = qualifiedName(of.schema, of.name);
  const name = quoteIdentifier(column.name);
  return {
    name: migrationName('add', column.name, 'to', of.name),
    sql: [
      `ALTER TABLE ${table} ADD COLUMN ${columnSql(column)};`,
      ...(comment === '' ? [] : [commentOn(`COLUMN ${table}.${name}`, comment)]),
    ].join('\n'),
    rollbackSql: `ALTER TABLE ${table} DROP COLUMN ${name};`,
  };
}

function columnSql({ name, type, notNull, source, expression }: NewColumn): string {
  const values = {
    none: '',
    default: ` DEFAULT ${expression}`,
    identity: ' GENERATED ALWAYS AS IDENTITY',
    generated: ` GENERATED ALWAYS AS (${expression}) STORED`,
  };
  return `${quoteIdentifier(name)} ${type.trim()}${values[source]}${notNull && source !== 'identity' ? ' NOT NULL' : ''}`;
}

/** @returns undefined when nothing is changed */
export function alterColumn(of: SchemaTable, column: SchemaColumn, next: ChangedColumn): ProposedMigration | undefined {
  const table = qualifiedName(of.schema, of.name);
  const name = quoteIdentifier(column.name);
  const steps = [...alterations(column, next)];
  const forward = steps.map(([there]) => `ALTER TABLE ${table} ALTER COLUMN ${name} ${there};`);
  const back = steps.map(([, back]) => `ALTER TABLE ${table} ALTER COLUMN ${name} ${back};`).reverse();
  if (next.comment !== (column.comment ?? '')) {
    forward.push(commentOn(`COLUMN ${table}.${name}`, next.comment === '' ? null : next.comment));
    back.unshift(commentOn(`COLUMN ${table}.${name}`, column.comment));
  }
  if (next.name !== column.name) {
    const renamed = quoteIdentifier(next.name);
    forward.push(`ALTER TABLE ${table} RENAME COLUMN ${name} TO ${renamed};`);
    back.unshift(`ALTER TABLE ${table} RENAME COLUMN ${renamed} TO ${name};`);
  }
  if (forward.length === 0) return undefined;
  return { name: migrationName('change', column.name, 'of', of.name), sql: forward.join('\n'), rollbackSql: back.join('\n') };
}

/** Each as it is done and undone. */
function* alterations(column: SchemaColumn, next: ChangedColumn): Generator<readonly [there: string, back: string]> {
  const name = quoteIdentifier(column.name);
  if (next.type.trim() !== column.type) {
    const using = next.using.trim() === '' ? `${name}::${next.type.trim()}` : next.using.trim();
    yield [`TYPE ${next.type.trim()} USING ${using}`, `TYPE ${column.type} USING ${name}::${column.type}`];
  }
  if (next.notNull !== column.notNull) {
    const words = ['DROP NOT NULL', 'SET NOT NULL'] as const;
    yield next.notNull ? [words[1], words[0]] : words;
  }
  if (column.generated === null && next.default.trim() !== (column.default ?? ''))
    yield [defaultSql(next.default), defaultSql(column.default)];
}

function defaultSql(expression: string | null): string {
  return expression === null || expression.trim() === '' ? 'DROP DEFAULT' : `SET DEFAULT ${expression.trim()}`;
}

/** What was in it does not come back. */
export function dropColumn(of: SchemaTable, column: SchemaColumn, isCascading: boolean): ProposedMigration {
  const table = qualifiedName(of.schema, of.name);
  return {
    name: migrationName('drop', column.name, 'of', of.name),
    sql: `ALTER TABLE ${table} DROP COLUMN ${quoteIdentifier(column.name)}${isCascading ? ' CASCADE' : ''};`,
  };
}

export function createIndex(
  of: SchemaTable,
  { name, columns, expression, method, where, isUnique, isConcurrent }: NewIndex,
): ProposedMigration {
  const items = [...columns.map(quoteIdentifier), ...(expression.trim() === '' ? [] : [`(${expression.trim()})`])];
  const concurrently = isConcurrent ? ' CONCURRENTLY' : '';
  const using = method === 'btree' ? '' : ` USING ${method}`;
  const condition = where.trim() === '' ? '' : ` WHERE ${where.trim()}`;
  const on = qualifiedName(of.schema, of.name);
  return {
    name: migrationName('index', name),
    sql: `CREATE ${isUnique ? 'UNIQUE ' : ''}INDEX${concurrently} ${quoteIdentifier(name)} ON ${on}${using} (${items.join(', ')})${condition};`,
    rollbackSql: `DROP INDEX${concurrently} ${qualifiedName(of.schema, name)};`,
    ...(isConcurrent ? { isTransaction: false } : {}),
  };
}

export function rename(object: NamedObject, name: string): ProposedMigration {
  const { what, schema } = object;
  return {
    name: migrationName('rename', object.name, 'to', name),
    sql: `ALTER ${nameOf(object)} RENAME TO ${quoteIdentifier(name)};`,
    rollbackSql: `ALTER ${what} ${qualifiedName(schema, name)}${argumentsOf(object)} RENAME TO ${quoteIdentifier(object.name)};`,
  };
}

export function changeComment(object: NamedObject, before: string | null, comment: string): ProposedMigration {
  return {
    name: migrationName('comment', object.name),
    sql: commentOn(nameOf(object), comment === '' ? null : comment),
    rollbackSql: commentOn(nameOf(object), before),
  };
}

/** @param again SQL that makes it again */
export function drop(object: NamedObject, again: string | undefined, isCascading: boolean): ProposedMigration {
  return {
    name: migrationName('drop', object.name),
    sql: `DROP ${nameOf(object)}${isCascading ? ' CASCADE' : ''};`,
    // What else a cascade drops is not known.
    ...(again === undefined || isCascading ? {} : { rollbackSql: again }),
  };
}

function nameOf(object: NamedObject): string {
  return `${object.what} ${qualifiedName(object.schema, object.name)}${argumentsOf(object)}`;
}

function argumentsOf({ arguments: list }: NamedObject): string {
  return list === undefined ? '' : `(${list})`;
}

/** What a dialog makes of a change: nothing runs before it is applied. */
export interface ProposedMigration {
  readonly name: string;
  readonly sql: string;
  /** Absent where nothing brings back what was there. */
  readonly rollbackSql?: string;
  /** false: it cannot run in a transaction. */
  readonly isTransaction?: false;
}

/** Begins a migration with it; one that is being written is lost. */
export function beginMigration({ name, sql, rollbackSql, isTransaction }: ProposedMigration): void {
  outcome.value = undefined;
  begin({ name, sql, hasRollback: rollbackSql !== undefined, rollbackSql: rollbackSql ?? '', isTransaction: isTransaction ?? true });
}

/** Whether there is a migration that has not been applied. */
export function isWriting(): boolean {
  const known = outcome.value;
  const isApplied = known?.state === 'done' && !known.request.dryRun && isOf(known, draft.value);
  return draft.value.sql.trim() !== '' && !isApplied;
}

/** Whether it can be put behind what is being written: either all of a migration runs in a transaction, or nothing. */
export function mayAdd({ isTransaction }: ProposedMigration): boolean {
  return isWriting() && (isTransaction ?? true) === draft.value.isTransaction;
}

export function addToMigration({ sql, rollbackSql }: ProposedMigration): void {
  const before = draft.peek();
  outcome.value = undefined;
  // What was done last is undone first. Without SQL for all there is none for the whole.
  const hasRollback = before.hasRollback && rollbackSql !== undefined;
  changeDraft({
    sql: `${before.sql.trimEnd()}\n\n${sql}`,
    hasRollback,
    rollbackSql: hasRollback ? `${rollbackSql}\n${before.rollbackSql}` : before.rollbackSql,
  });
}

/** As DROP and ALTER take it. */
export type ObjectKind =
  | 'TABLE'
  | 'VIEW'
  | 'MATERIALIZED VIEW'
  | 'FOREIGN TABLE'
  | 'INDEX'
  | 'TYPE'
  | 'DOMAIN'
  | 'SEQUENCE'
  | 'FUNCTION'
  | 'PROCEDURE'
  | 'AGGREGATE';

interface NamedObject {
  readonly what: ObjectKind;
  readonly schema: string;
  readonly name: string;
  /** Of a function: what tells it from others of its name. */
  readonly arguments?: string;
}

/** What a dialog asks for. */
export type Change =
  | { readonly kind: 'new table' }
  | { readonly kind: 'add column'; readonly table: SchemaTable }
  | { readonly kind: 'alter column'; readonly table: SchemaTable; readonly column: SchemaColumn }
  | { readonly kind: 'new index'; readonly table: SchemaTable }
  | (NamedObject & { readonly kind: 'rename' })
  | (NamedObject & { readonly kind: 'comment'; readonly comment: string | null })
  | (NamedObject & { readonly kind: 'drop' /** SQL that makes it again. */; readonly again?: string | undefined });

/** The dialog that is shown. */
export const change = signal<Change | undefined>(undefined);

export function openChange(next: Change): void {
  change.value = next;
}

export function closeChange(): void {
  change.value = undefined;
}
