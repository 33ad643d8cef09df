import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { formatTime } from '../../format.ts';
import type { SessionList } from './session-calls.ts';

/** What the server's clock shows, in ms. It stands still while the list does. */
const serverNow = signal(Date.now());
/** How far the server's clock is ahead of this browser's. */
let aheadMs = 0;

/** The request for the list is in the list, and has begun about now. */
export function setClock({ sessions }: SessionList): void {
  const own = sessions.find(({ isOwn }) => isOwn);
  aheadMs = own === undefined ? 0 : Date.parse(own.connectedAt) - Date.now();
  serverNow.value = Date.now() + aheadMs;
}

/** Lets the clock run, by seconds. */
export function useTicking(isRunning: boolean): void {
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => {
      serverNow.value = Date.now() + aheadMs;
    }, 1_000);
    return () => clearInterval(timer);
  }, [isRunning]);
}

/** How long ago something was, counted on. */
export function Elapsed({ since }: { readonly since: string }) {
  return <time title={formatTime(since)}>{formatElapsed(serverNow.value - Date.parse(since))}</time>;
}

/** `5 s`, `2 min 5 s`, `3 h 4 min`, `2 days 3 h` */
export function formatElapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 48) return `${hours} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}
