import type { SchemaTable } from '../../../api/schema.ts';

/** How rows are told apart, and put into an order that goes on where a page has ended. */
export type RowOrder =
  /** Columns that no two rows share, none of them ever NULL. */
  | { readonly kind: 'key'; readonly columns: readonly string[] }
  /** Where the row lies: a row that is changed moves. */
  | { readonly kind: 'ctid' }
  /** By counting: what is added or deleted meanwhile shifts the rest. */
  | { readonly kind: 'offset' };

export function rowOrderOf(table: SchemaTable): RowOrder {
  const columns = table.primaryKey?.columns ?? uniqueColumnsOf(table);
  if (columns !== undefined) return { kind: 'key', columns };
  return table.kind === 'table' || table.kind === 'materialized view' ? { kind: 'ctid' } : { kind: 'offset' };
}

/** Of a unique index of whole columns, over all rows. */
function uniqueColumnsOf({ columns, indexes }: SchemaTable): readonly string[] | undefined {
  const notNull = new Set(columns.filter((column) => column.notNull).map(({ name }) => name));
  const found = indexes.find(
    (index) =>
      index.isUnique &&
      index.isValid &&
      index.columns.length > 0 &&
      index.columns.every((name) => name !== null && notNull.has(name)) &&
      !/ WHERE /.test(index.definition),
  );
  return found?.columns.filter((name) => name !== null);
}

/** Why rows cannot be changed; undefined: they can. */
export function readOnlyReason(table: SchemaTable, scope: 'admin' | 'write' | 'read' | undefined): string | undefined {
  if (table.kind === 'view' || table.kind === 'materialized view') return `Read-only: this is a ${table.kind}.`;
  if (table.kind === 'foreign table') return 'Read-only: the rows of a foreign table are on another server.';
  if (scope === 'read') return 'Read-only: the scope of this key is read.';
  if (rowOrderOf(table).kind !== 'key')
    return 'Read-only: the table has no primary key and no other unique key without NULL, so a single row cannot be named.';
  return undefined;
}
