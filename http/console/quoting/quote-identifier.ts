import { RESERVED_WORDS } from './reserved-words.ts';

const PLAIN = /^[a-z_][a-z0-9_]*$/;

/** As `quote_ident`: in quotes where the name needs them. */
export function quoteIdentifier(name: string): string {
  return PLAIN.test(name) && !RESERVED_WORDS.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** `schema.name`, each quoted where it needs that. */
export function qualifiedName(schemaName: string, name: string): string {
  return `${quoteIdentifier(schemaName)}.${quoteIdentifier(name)}`;
}
