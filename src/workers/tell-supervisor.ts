import type { ToSupervisor } from './messages.ts';

/** Sends to the supervisor; does nothing when it has ended, which ends the worker too. */
export function tellSupervisor(message: ToSupervisor): void {
  if (process.connected) process.send?.(message);
}
