import type { SentStatement, SessionState } from '../../src/router/sessions.ts';
import type { WireSession } from '../relay/wire-session.ts';

/** More is never shown. */
const READ_MAX_BYTES = 8_192;

/** The state of a session, as it is listed; undefined: it has ended. */
export function stateOf({ activity, status }: WireSession): SessionState | undefined {
  switch (activity) {
    case 'ended':
      return undefined;
    case 'waiting':
      return 'waiting for a backend';
    case 'idle in transaction':
      return status === 'E' ? 'idle in failed transaction' : activity;
    default:
      return activity;
  }
}

/**
 * The statement that a session runs. Where several were sent together it is the last of them; where others were sent
 * behind them, it is not known until they have been answered.
 */
export function runningStatement({ activity, sentText, replies, services, since }: WireSession): SentStatement | undefined {
  const { text, isWhole, batch } = sentText;
  if (activity !== 'active' || text === undefined || batch !== replies.oldestBatch) return undefined;
  if (typeof text === 'string') return { text: Buffer.from(text, 'latin1').toString(), isWhole, since };
  // The definition of a statement that is too long to keep is empty.
  const end = text.indexOf(0);
  if (end < 0) return undefined;
  const sql = text.toString('utf8', 0, Math.min(end, READ_MAX_BYTES));
  return { text: services.rewriter?.clientSql(sql) ?? sql, isWhole: end <= READ_MAX_BYTES, since };
}
