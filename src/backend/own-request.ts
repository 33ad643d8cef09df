import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import { type ReplyHandler, ReplyReader, replyFrames } from '../protocol/reply-reader.ts';
import { type BackendConnection, NO_RECEIVER } from './connection.ts';

const FRAMES = replyFrames(65_536);

export interface OwnRequest {
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
