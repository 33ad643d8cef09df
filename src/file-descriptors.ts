import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { devNull } from 'node:os';
import type { Observe } from './observation.ts';
import { hasCode } from './system-errors.ts';

/** How many files the process may have open; undefined if unknown or unlimited. Node raises the limit to the hard limit when it starts. */
export function openFilesLimit(): number | undefined {
  const limit = /^Max open files +(\d+|unlimited)/m.exec(readLimits())?.[1] ?? reportedLimit();
  return limit === undefined || limit === 'unlimited' ? undefined : Number(limit);
}

/** @see https://www.man7.org/linux/man-pages/man5/proc_pid_limits.5.html */
function readLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'latin1');
  } catch {
    return '';
  }
}

/** @see https://nodejs.org/api/report.html */
function reportedLimit(): string | undefined {
  const { userLimits }: { userLimits?: { open_files?: { soft?: number | string } } } = process.report.getReport();
  const soft = userLimits?.open_files?.soft;
  return soft === undefined ? undefined : String(soft);
}

const CHECK_EVERY_MS = 1_000;
const WARN_EVERY_MS = 60_000;

/**
 * Reports when no more files can be opened. Node does not: it closes new connections silently then.
 * @returns a function that stops watching
 */
export function watchDescriptors(observe: Observe): () => void {
  let warnedAt = -WARN_EVERY_MS;
  const check = async () => {
    try {
      await (await open(devNull)).close();
    } catch (cause) {
      if (!isOutOfFiles(cause) || performance.now() - warnedAt < WARN_EVERY_MS) return;
      warnedAt = performance.now();
      const message = 'no more files can be opened, so new connections are closed at once: raise the limit of open files';
      observe({ name: 'service.failure', message, cause });
    }
  };
  const timer = setInterval(() => void check(), CHECK_EVERY_MS).unref();
  return () => clearInterval(timer);
}

export function isOutOfFiles(cause: unknown): boolean {
  return hasCode(cause, 'EMFILE', 'ENFILE');
}
