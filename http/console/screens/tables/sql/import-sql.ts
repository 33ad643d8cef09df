import type { SchemaTable } from '../../../api/database-schema.ts';
import type { TableColumn } from './table-column.ts';
import { tableName } from './table-name.ts';

/**
 * Inserts many rows; each column is one array parameter. PostgreSQL reads each value for the type of its column, and refuses one that is
 * too long: a cast to `varchar(3)` would cut it, so the types have no modifiers. Arrays in arrays would be taken apart, so they come as text.
 */
export function importSql(table: SchemaTable, columns: readonly TableColumn[]): string {
  const names = columns.map(({ sqlName }) => sqlName).join(', ');
  const arrays = columns.map(({ type }, index) => `$${index + 1}::${isArray(type) ? 'text' : withoutModifier(type)}[]`);
  const aliases = columns.map((_, index) => `c${index + 1}`);
  const values = columns.map(({ type }, index) => (isArray(type) ? `${aliases[index]}::${withoutModifier(type)}` : aliases[index]));
  return `INSERT INTO ${tableName(table)} (${names})\nSELECT ${values.join(', ')}\nFROM unnest(${arrays.join(', ')}) AS c (${aliases.join(', ')})`;
}

function isArray(type: string): boolean {
  return type.endsWith('[]');
}

/** `numeric(10,2)` → `numeric`; a name in quotes stays as it is. */
export function withoutModifier(type: string): string {
  const array = isArray(type) ? '[]' : '';
  const element = type.slice(0, type.length - array.length);
  if (element === 'interval' || element.startsWith('interval ')) return `interval${array}`;
  // Without a length these would have the length 1.
  if (/^character(?:\(|$)/.test(element)) return `bpchar${array}`;
  if (/^bit(?:\(|$)/.test(element)) return `pg_catalog."bit"${array}`;
  return element.replace(/\([^()"]*\)(?=[^()"]*$)/, '').replace(/ {2,}/g, ' ') + array;
}
