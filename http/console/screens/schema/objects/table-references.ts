import type { Schema, SchemaTable } from '../../../api/database-schema.ts';

/** Tables whose foreign keys refer to this one, with those keys; itself among them. */
export function referencesTo(schema: Schema, { schema: schemaName, name }: SchemaTable) {
  return schema.tables.flatMap((table) =>
    table.foreignKeys
      .filter(({ referencedSchema, referencedTable }) => referencedSchema === schemaName && referencedTable === name)
      .map((key) => ({ table, key })),
  );
}
