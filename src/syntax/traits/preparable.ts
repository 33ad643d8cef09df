import type { SessionTraits } from './session-traits.ts';

/**
 * `'now'::timestamptz` and the like become constants when a statement is prepared.
 * @see https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-DATETIME-SPECIAL-VALUES
 */
const TIME_CONSTANT = /'\s*(?:now|today|tomorrow|yesterday)\b/i;
const QUERY = /^\s*(?:select|insert|update|delete|merge|values|with|table)\b/i;

/** Whether the text means the same when it is prepared again with the same settings. */
export function canBePreparedAgain(text: string): boolean {
  return !TIME_CONSTANT.test(text);
}

/** Whether Postern may prepare a text that the client has not asked it to prepare. */
export function isPreparable(text: string, traits: SessionTraits): boolean {
  const { leavesState, namesPrepared, listsPrepared, mentionsPids } = traits;
  return leavesState !== 'yes' && !namesPrepared && !listsPrepared && !mentionsPids && QUERY.test(text) && canBePreparedAgain(text);
}
