import type { Worker } from 'node:cluster';

/** A reply to one of Node's own messages between the processes of a cluster. */
interface InternalReply {
  readonly ack?: number;
}

/**
 * Gives connections to other workers that this one has been sent and has not taken when it ends. Node waits for the worker's answer and
 * keeps its handle open, so that the client of a worker that was killed would stay connected to nobody.
 * @param isServed whether another worker serves the ports
 * @see https://github.com/nodejs/node/blob/v24.x/lib/internal/cluster/round_robin_handle.js
 */
export function returnConnections({ process: child }: Worker, isServed: () => boolean): void {
  /** By the numbers of the messages. */
  const sent = new Map<number, { close(): void }>();
  const send = child.send;
  child.send = (...values: unknown[]) => {
    const [message, handle] = values;
    if (isNewConnection(message) && isHandle(handle)) sent.set(message.seq, handle);
    return Reflect.apply(send, child, values);
  };
  child.on('internalMessage', ({ ack }: InternalReply) => {
    if (ack !== undefined) sent.delete(ack);
  });
  child.once('exit', () => {
    for (const [seq, handle] of [...sent]) {
      // As a worker says it that does not accept connections any more.
      if (isServed()) child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack: seq, accepted: false });
      else handle.close();
    }
  });
}

function isNewConnection(message: unknown): message is { readonly seq: number } {
  return (
    typeof message === 'object' &&
    message !== null &&
    'act' in message &&
    message.act === 'newconn' &&
    'seq' in message &&
    typeof message.seq === 'number'
  );
}

function isHandle(handle: unknown): handle is { close(): void } {
  return typeof handle === 'object' && handle !== null && 'close' in handle && typeof handle.close === 'function';
}
