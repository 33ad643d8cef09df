import type { Routine, Schema, SchemaTable, SchemaType, Sequence } from '../../api/database-schema.ts';
import { qualifiedName } from '../../quoting.ts';

export type Extension = Schema['extensions'][number];

/** One thing in the database. */
export type SchemaObject =
  | { readonly kind: 'table'; readonly of: SchemaTable }
  | { readonly kind: 'sequence'; readonly of: Sequence }
  | { readonly kind: 'type'; readonly of: SchemaType }
  | { readonly kind: 'function'; readonly of: Routine }
  | { readonly kind: 'extension'; readonly of: Extension };

/**
 * What stands in the address behind `#/schema/`: `public.orders` for tables and views; for others the kind and a space before it. No name
 * has a space unless it is quoted, so these never are the same.
 */
export function addressOf({ kind, of }: SchemaObject): string {
  switch (kind) {
    case 'table':
      return qualifiedName(of.schema, of.name);
    case 'function':
      return `function ${qualifiedName(of.schema, of.name)}(${of.identityArguments})`;
    case 'extension':
      return `extension ${of.name}`;
    default:
      return `${kind} ${qualifiedName(of.schema, of.name)}`;
  }
}

export function objectsOf({ tables, sequences, types, functions, extensions }: Schema): readonly SchemaObject[] {
  return [
    ...tables.map((of) => ({ kind: 'table' as const, of })),
    ...sequences.map((of) => ({ kind: 'sequence' as const, of })),
    ...types.map((of) => ({ kind: 'type' as const, of })),
    ...functions.map((of) => ({ kind: 'function' as const, of })),
    ...extensions.map((of) => ({ kind: 'extension' as const, of })),
  ];
}
