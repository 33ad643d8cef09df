import type { BackendConnection } from './connection.ts';

/** Query 'DISCARD ALL' as a frontend message. */
const DISCARD_ALL = Buffer.from('Q\0\0\0\x10DISCARD ALL\0', 'latin1');
/** CommandComplete 'DISCARD ALL' and ReadyForQuery 'I': what the backend answers when all went well. */
const DISCARDED = Buffer.from('C\0\0\0\x10DISCARD ALL\0Z\0\0\0\x05I', 'latin1');
const RESET_TIMEOUT_MS = 5_000;
const REPLY_MAX_BYTES = 65_536;

/**
 * Drops everything that a session may hold beyond its transaction: settings, temporary tables, prepared statements,
 * cursors, LISTEN, advisory locks. Settings return to the startup packet's.
 * @returns false when the session did not answer as it should and must not be used again
 * @see https://www.postgresql.org/docs/current/sql-discard.html
 */
export function discardState(backend: BackendConnection): Promise<boolean> {
  return new Promise((resolve) => {
    let reply: Buffer = Buffer.alloc(0);
    const settle = (ok: boolean) => {
      clearTimeout(timer);
      backend.detach();
      if (ok) backend.session.clear();
      resolve(ok);
    };
    const timer = setTimeout(settle, RESET_TIMEOUT_MS, false);
    if (backend.closed) {
      settle(false);
      return;
    }
    backend.attach({
      // ParameterStatus messages may stand between the two; an ErrorResponse means the reset failed.
      data(chunk) {
        reply = Buffer.concat([reply, chunk]);
        if (reply.subarray(-6).equals(DISCARDED.subarray(-6))) settle(reply.includes(DISCARDED.subarray(0, -6)));
        else if (reply.length > REPLY_MAX_BYTES || reply.subarray(-6, -1).equals(DISCARDED.subarray(-6, -1))) settle(false);
      },
      drain() {},
      closed: () => settle(false),
    });
    backend.write(DISCARD_ALL);
    backend.resume();
  });
}
