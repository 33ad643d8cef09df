import type { SchemaTable } from '../../../api/database-schema.ts';

/** How rows are told apart; pages go on in this order where the last one has ended. */
export type RowIdentity =
  /** Columns that no two rows share, none of them ever NULL. */
  | { readonly kind: 'key'; readonly columns: readonly string[] }
  /** Where the row lies: a row that is changed moves. */
  | { readonly kind: 'ctid' }
  /** By counting: what is added or deleted meanwhile shifts the rest. */
  | { readonly kind: 'offset' };

export function rowIdentityOf(table: SchemaTable): RowIdentity {
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
