import type { Readable, Writable } from 'node:stream';
import { giveBack } from '../../src/sql/json-buffer.ts';

/**
 * Sends a stream in pieces, with backpressure. If the stream fails, the connection is destroyed, so that the client notices that the
 * reply is incomplete; if the connection is closed, the stream is destroyed.
 * @param write reports when a piece has been written, and whether more may be written
 */
export function pipeStream(body: Readable, into: Writable, write: (piece: Buffer, written: () => void) => boolean, end: () => void): void {
  const resume = () => body.resume();
  const stop = () => body.destroy();
  into.on('drain', resume);
  into.on('close', stop);
  body.on('error', () => into.destroy());
  body.on('end', () => {
    into.off('drain', resume);
    into.off('close', stop);
    end();
  });
  body.on('data', (piece: Buffer) => {
    if (!write(piece, () => giveBack(piece))) body.pause();
  });
}
