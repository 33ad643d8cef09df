import { ServiceError } from '../errors.ts';
import { BackendType, decodeCommandComplete, decodeErrorFields, decodeReadyForQuery, PostgresError } from '../protocol/backend.ts';
import { backendFrames } from '../protocol/frame.ts';
import { queryMessage } from '../protocol/frontend-encoder.ts';
import { MessageReader } from '../protocol/message-reader.ts';
import type { BackendConnection } from './connection.ts';

const REPLY_MAX_BYTES = 65_536;

/**
 * Runs statements of our own on an idle session, whose receiver is set aside.
 * @param more another text that is to be run behind the first one, whatever comes of that
 * @returns the last statement's command tag, e.g. `SELECT 1`
 * @throws PostgresError; ServiceError `backend_lost`
 */
export function runCommand(backend: BackendConnection, sql: string, more?: string): Promise<string> {
  const texts = more === undefined ? [sql] : [sql, more];
  return new Promise((resolve, reject) => {
    const reader = new MessageReader(backendFrames({}, REPLY_MAX_BYTES));
    let ready = 0;
    let tag = '';
    let failure: Error | undefined;
    const settle = (error: Error | undefined) => {
      backend.detach();
      if (error === undefined) resolve(tag);
      else reject(error);
    };
    const receive = (type: number, body: Buffer) => {
      if (type === BackendType.CommandComplete) tag = decodeCommandComplete(body).tag;
      if (type === BackendType.ErrorResponse) failure = new PostgresError(decodeErrorFields(body));
      if (type !== BackendType.ReadyForQuery) return;
      ready += 1;
      if (decodeReadyForQuery(body) !== 'I') failure ??= new ServiceError('backend_lost', 'the session is in a transaction');
      if (ready === texts.length) settle(failure);
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
      closed: (cause) => settle(failure ?? new ServiceError('backend_lost', 'the connection to the database was lost', { cause })),
    });
    if (backend.closed) settle(new ServiceError('backend_lost', 'the connection to the database was lost'));
    else backend.write(Buffer.concat(texts.map((text) => queryMessage(text))));
    backend.resume();
  });
}
