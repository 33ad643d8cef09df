import type { SqlTraits } from './sql-traits.ts';

/** `'now'::timestamptz` and the like are made into values when a statement is prepared. */
const TIME_OF_PREPARING = /'\s*(?:now|today|tomorrow|yesterday)\b/i;
const QUERY = /^\s*(?:select|insert|update|delete|merge|values|with|table)\b/i;

/** Whether the same text, prepared again in the same settings, is the same statement. */
export function staysTheSame(text: string): boolean {
  return !TIME_OF_PREPARING.test(text);
}

/** Whether a text may be prepared behind the client's back. */
export function isPreparable(text: string, traits: SqlTraits): boolean {
  const { leavesState, namesPrepared, listsPrepared, mentionsPids } = traits;
  return leavesState !== 'yes' && !namesPrepared && !listsPrepared && !mentionsPids && QUERY.test(text) && staysTheSame(text);
}
