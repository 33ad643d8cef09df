import { ServiceError } from '../errors.ts';
import { BackendType, decodeCommandComplete, decodeErrorFields, decodeReadyForQuery, PostgresError } from '../protocol/backend.ts';
import { backendFrames } from '../protocol/message-framing.ts';
import { MessageReader } from '../protocol/message-reader.ts';
import type { BackendConnection } from './connection.ts';

const FRAMES = backendFrames({}, 65_536);

export interface OwnRequest {
  /** Frontend messages; each request ends with a Query or Sync. */
  readonly bytes: Buffer;
  /** How many ReadyForQuery messages the reply has. Default: one. */
  readonly requests?: number;
  /** Called with each message of the reply. */
  readonly received?: (type: number, body: Buffer) => void;
}

/**
 * Sends Postern's own requests on an idle session, whose receiver is detached, and reads the whole reply.
 * @returns the last command tag, e.g. `SELECT 1`
 * @throws PostgresError the first error of the reply, after reading it to its end; ServiceError `backend_lost`
 */
export function readReply(backend: BackendConnection, { bytes, requests = 1, received }: OwnRequest): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new MessageReader(FRAMES);
    let ready = 0;
    let tag = '';
    let failure: Error | undefined;
    const settle = (error: Error | undefined) => {
      backend.detach();
      if (error === undefined) resolve(tag);
      else reject(error);
    };
    const receive = (type: number, body: Buffer) => {
      received?.(type, body);
      if (type === BackendType.CommandComplete) tag = decodeCommandComplete(body).tag;
      if (type === BackendType.ErrorResponse) failure ??= new PostgresError(decodeErrorFields(body));
      if (type !== BackendType.ReadyForQuery) return;
      ready += 1;
      if (decodeReadyForQuery(body) !== 'I') failure ??= new ServiceError('backend_lost', 'the session is in a transaction');
      if (ready === requests) settle(failure);
    };
    backend.attach({
      data(chunk) {
        try {
          reader.push(chunk);
          for (let message = reader.next(); message !== undefined; message = reader.next()) receive(message.type, message.body);
        } catch (error) {
          settle(error instanceof Error ? error : new Error(String(error)));
        }
      },
      drain() {},
      closed: (cause) => settle(failure ?? lost(cause)),
    });
    if (backend.closed) settle(lost());
    else backend.write(bytes);
    backend.resume();
  });
}

function lost(cause?: Error): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database server was lost', { cause });
}
