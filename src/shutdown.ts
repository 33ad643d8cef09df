import { setTimeout as delay } from 'node:timers/promises';
import type { Config } from './config.ts';

/** How often a process that leaves its ports looks whether its clients have left. */
const EMPTY_CHECK_MS = 50;

/** Returns when all clients have left both doors, or it takes too long. */
export async function clientsLeft(
  { POSTERN_REPLACE_TIMEOUT_MS: timeoutMs }: Config,
  wire: { readonly size: number },
  http: { readonly requests: number },
): Promise<void> {
  const until = performance.now() + timeoutMs;
  while (wire.size + http.requests > 0 && performance.now() < until) await delay(EMPTY_CHECK_MS);
}

/** Why a process stops that others have taken the place of. */
export const REPLACED = 'replaced';

/** What a service that stops waits for, for the log. */
export function stopMessage(
  { transactions, requests }: { readonly transactions: number; readonly requests: number },
  config: Config,
  reason: string,
): string {
  const busy = [counted(transactions, 'transaction'), counted(requests, 'request')].filter((text) => text !== undefined).join(' and ');
  const drains = config.POSTERN_DRAIN_MS === 0 ? 'stopping' : `stopping in ${config.POSTERN_DRAIN_MS / 1_000} s`;
  const waits = busy === '' ? drains : `${drains}: waits up to ${config.POSTERN_SHUTDOWN_TIMEOUT_MS / 1_000} s for ${busy}`;
  // Signals are for all workers, and the others stay.
  return reason === REPLACED ? waits : `${waits}; a second Ctrl-C or signal ends it at once`;
}

function counted(number: number, what: string): string | undefined {
  return number === 0 ? undefined : `${number} ${what}${number === 1 ? '' : 's'}`;
}
