import type { Buffer } from 'node:buffer';
import { Reason } from './input-gate.ts';
import type { WireSession } from './wire-session.ts';

/* Which of the client's input has to wait, and the count of what is held. */

/** Counts the bytes of the client's input that are held. */
export function countInput({ services, clientScanner, gate }: WireSession): void {
  const { bufferBudget } = services;
  const bytes = (clientScanner.held?.bytes ?? 0) + gate.inputBytes;
  if (bytes !== bufferBudget.fromClientBytes) bufferBudget.fromClient(bytes);
}

/**
 * Whether new input has to wait: the backend is shared, earlier input has not been sent yet, or ReadyForQuery is held while
 * settings are restored. A message that has begun (late data of a COPY) is read to its end first.
 */
export function mustHoldInput({ link, gate, clientScanner }: WireSession): boolean {
  return link.shared !== undefined || gate.isClosed(Reason.signals) || (gate.isClosed(Reason.settings) && clientScanner.last);
}

/** Whether held input still has to wait: nothing is sent behind a request in a shared pipeline, or before signals have arrived. */
export function mustHoldOn({ link, replies, gate }: WireSession): boolean {
  return (link.shared !== undefined && replies.length > 0) || gate.isClosed(Reason.signals);
}

/**
 * Few bytes from the client can cause many or large statements to be prepared on the backend. The rest of the input waits then.
 * @returns false when there is no rest
 */
export function queueRest(session: WireSession, rest: Buffer): boolean {
  const { gate, events } = session;
  if (rest.length === 0) return false;
  gate.hold(rest);
  gate.close(Reason.backendBuffer);
  setImmediate(() => {
    if (gate.isClosed(Reason.backendBuffer) && !session.isOver) events.continueInput();
  });
  return true;
}
