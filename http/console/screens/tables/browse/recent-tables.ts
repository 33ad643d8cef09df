import type { SchemaTable } from '../../../api/database-schema.ts';
import { isNothing } from '../edit/staged-changes.ts';
import type { Filter } from '../sql/filter-conditions.ts';
import { tableName } from '../sql/table-name.ts';
import { OpenTable } from './open-table.ts';

/** Tables that were looked at keep their filters, their place, and what is staged; of those with nothing staged the last ones do. */
const KEPT_MAX = 8;
const tables = new Map<string, OpenTable>();

/** The table as it was left, unless its columns have changed since. */
export function openTable(table: SchemaTable): OpenTable {
  const name = tableName(table);
  const known = tables.get(name);
  if (known !== undefined && (hasSameShape(known.table, table) || !isNothing(known.staged.peek()))) {
    tables.delete(name);
    tables.set(name, known);
    return known;
  }
  const opened = new OpenTable(table);
  tables.set(name, opened);
  forgetOldest();
  return opened;
}

/** Opens a table with these rows of it. */
export function showRows(table: SchemaTable, filters: readonly Filter[]): void {
  void openTable(table).show({ filters, sort: undefined });
}

/** How many changes wait in a table; a signal is read. */
export function stagedIn(name: string): number {
  const staged = tables.get(name)?.staged.value;
  return staged === undefined ? 0 : staged.rows.size + staged.inserts.length;
}

function hasSameShape(one: SchemaTable, other: SchemaTable): boolean {
  const shape = ({ columns, primaryKey, indexes, kind }: SchemaTable) =>
    JSON.stringify([columns, primaryKey, indexes.map(({ definition, isValid }) => [definition, isValid]), kind]);
  return shape(one) === shape(other);
}

function forgetOldest(): void {
  const idle = [...tables].filter(([, { staged }]) => isNothing(staged.peek()));
  for (const [name] of idle.slice(0, Math.max(0, idle.length - KEPT_MAX))) tables.delete(name);
}

addEventListener('beforeunload', (event) => {
  // Whoever signs out has left the screen, and wants nothing to stay.
  const isSignedOut = location.hash === '';
  if (!isSignedOut && [...tables.values()].some(({ staged }) => !isNothing(staged.peek()))) event.preventDefault();
});
