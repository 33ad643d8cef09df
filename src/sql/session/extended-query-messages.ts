import { serialize } from 'pg-protocol';
import { bindAndExecute } from '../../protocol/frontend.ts';
import type { ParameterText } from '../parameters/encode-parameters.ts';

/** Makes Parse and Describe for a statement; without a name, for the unnamed one. */
export function parseAndDescribe(sql: string, name = ''): readonly Uint8Array[] {
  return [serialize.parse({ text: sql, name }), serialize.describe({ type: 'S', name })];
}

/**
 * Makes Close for a statement. Closing one that does not exist is no error.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY
 */
export function closeStatement(name: string): Uint8Array {
  return serialize.close({ type: 'S', name });
}

/** Makes all messages of an extended query, Sync included, for a statement whose parameters need no description. */
export function extendedQuery(sql: string, values: readonly ParameterText[] = []): readonly Uint8Array[] {
  return [...parseAndDescribe(sql), bindAndExecute(values)];
}
