import { z } from 'zod';

export type JsonSchema = z.core.JSONSchema.BaseSchema;

/** How the JSON schemas of the OpenAPI document are made. */
export const JSON_SCHEMA_OPTIONS = { unrepresentable: 'any', override: tidy } as const;

export function schemaOf(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return plain(z.toJSONSchema(schema, { io, ...JSON_SCHEMA_OPTIONS }));
}

/** A schema without what JSON Schema needs at the root of a document only. */
export function plain({
  $schema: _dialect,
  $id: _id,
  '~standard': _standard,
  ...rest
}: JsonSchema & { '~standard'?: unknown }): JsonSchema {
  return rest;
}

/** Leaves out bounds that every integer has, and patterns that repeat the format beside them. */
function tidy({ jsonSchema }: { readonly jsonSchema: JsonSchema }): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.format !== undefined || jsonSchema.type === 'integer') delete jsonSchema.pattern;
}
