import type { SchemaTable } from '../../../api/database-schema.ts';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';

/** As SQL and the address of a table's rows write it: `public.orders`. */
export function tableName({ schema, name }: SchemaTable): string {
  return qualifiedName(schema, name);
}
