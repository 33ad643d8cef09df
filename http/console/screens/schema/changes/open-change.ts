import { signal } from '@preact/signals';
import type { SchemaColumn, SchemaTable } from '../../../api/database-schema.ts';

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

export interface NamedObject {
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
