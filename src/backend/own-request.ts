import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import { queryMessage } from '../protocol/frontend.ts';
import { type ReplyHandler, ReplyReader, replyFrames } from '../protocol/reply-reader.ts';
import { type BackendConnection, NO_RECEIVER } from './connection.ts';

const FRAMES = replyFrames(65_536);

interface OwnRequest {
  /** Frontend messages; each request ends with a Query or Sync. */
  readonly bytes: Buffer;
  /** How many ReadyForQuery messages the reply has. Default: one. */
  readonly requests?: number;
  /** Called with each ParameterStatus of the reply. */
  readonly parameterStatus?: (status: { readonly parameter: string; readonly value: string }) => void;
}

/**
 * Sends Postern's own requests on an idle session, which must have no receiver, and reads the whole reply.
 * @returns the last command tag, e.g. `SELECT 1`
 * @throws PostgresError the first error of the reply, after reading it to its end; ServiceError `backend_lost`
 */
export function readReply(backend: BackendConnection, { bytes, requests = 1, parameterStatus }: OwnRequest): Promise<string> {
  return new Promise((resolve, reject) => {
    let ready = 0;
    let tag = '';
    let failure: Error | undefined;
    const settle = (error: Error | undefined) => {
      backend.receiver = NO_RECEIVER;
      if (error === undefined) resolve(tag);
      else reject(error);
    };
    const handler: ReplyHandler = {
      completed: (completed) => {
        tag = completed.tag;
      },
      failed: (fields) => {
        failure ??= new PostgresError(fields);
      },
      ready: (status) => {
        ready += 1;
        if (status !== 'I') failure ??= new ServiceError('backend_lost', 'the session is in a transaction');
        if (ready === requests) settle(failure);
      },
      ...(parameterStatus === undefined ? {} : { parameterStatus }),
    };
    const reader = new ReplyReader(FRAMES, handler);
    backend.receiver = {
      data(chunk) {
        try {
          reader.push(chunk);
          while (reader.next());
        } catch (error) {
          settle(error instanceof Error ? error : new Error(String(error)));
        }
      },
      drain() {},
      closed: (cause) => settle(failure ?? lost(cause)),
    };
    if (backend.closed) settle(lost());
    else backend.write(bytes);
    backend.resume();
  });
}

function lost(cause?: Error): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database server was lost', { cause });
}

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

const RESET_TIMEOUT_MS = 5_000;

/**
 * Discards the state of a session: settings, temporary tables, prepared statements,
 * cursors, LISTEN, advisory locks. Settings return to those of the startup packet.
 * @returns false when the session failed or did not answer in time; it must not be used again
 * @see https://www.postgresql.org/docs/current/sql-discard.html
 */
export async function discardState(backend: BackendConnection): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(RESET_TIMEOUT_MS, false, { signal: timer.signal }).catch(() => false);
  // A statement_timeout that expires as DISCARD ALL ends may fail the next statement, so an empty one follows.
  const discarded = runCommand(backend, 'DISCARD ALL', '').then(
    () => true,
    () => false,
  );
  const ok = await Promise.race([discarded, late]);
  timer.abort();
  backend.receiver = NO_RECEIVER;
  if (ok) backend.session.clear();
  return ok;
}
