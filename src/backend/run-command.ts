import { queryMessage } from '../protocol/frontend.ts';
import type { BackendConnection } from './connection.ts';
import { readReply } from './own-request.ts';

/**
 * Runs Postern's own statements on an idle session, whose receiver is detached.
 * @param more another query to run after the first one, even if that fails
 * @returns the last statement's command tag, e.g. `SELECT 1`
 * @throws as {@link readReply}
 */
export function runCommand(backend: BackendConnection, sql: string, more?: string): Promise<string> {
  const texts = more === undefined ? [sql] : [sql, more];
  return readReply(backend, { bytes: Buffer.concat(texts.map((text) => queryMessage(text))), requests: texts.length });
}
