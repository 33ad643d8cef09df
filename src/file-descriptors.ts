import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { devNull } from 'node:os';
import type { Config } from './config.ts';
import type { Observe } from './observation.ts';

/** How many connections each door accepts. */
export interface ConnectionLimits {
  readonly http: number;
  /** Authenticated clients at the wire door; as many unauthenticated connections are accepted. */
  readonly wire: number;
}

/** File descriptors for files, the ops port, the control database, cancel requests, and backend sessions being replaced. */
const RESERVED = 128;

/**
 * The connection limits of the settings. If the process may not open so many files, both doors get less: an equal part, or what
 * the setting says if that is less. So no door can use the descriptors of the other, of backend sessions or of the ops port.
 * @param openFiles how many files the process may have open; undefined: not known
 */
export function connectionLimits(
  { POSTERN_HTTP_CONNECTIONS_MAX: http, POSTERN_CLIENTS_MAX: wire }: Config,
  backendsMax: number,
  openFiles: number | undefined,
  observe: Observe,
): ConnectionLimits {
  const others = RESERVED + backendsMax;
  const wanted = http + 2 * wire;
  if (openFiles === undefined || others + wanted <= openFiles) return { http, wire };
  const left = openFiles - others;
  const limits = { http: lesser(http, Math.max(left / 3, left - 2 * wire)), wire: lesser(wire, Math.max(left / 3, (left - http) / 2)) };
  observe({
    name: 'service.warning',
    message: `the limit of open files is ${openFiles}, the settings need ${others + wanted}: POSTERN_HTTP_CONNECTIONS_MAX is lowered to ${limits.http}, POSTERN_CLIENTS_MAX to ${limits.wire}`,
  });
  return limits;
}

function lesser(asked: number, possible: number): number {
  return Math.max(1, Math.min(asked, Math.floor(possible)));
}

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
  return cause instanceof Error && 'code' in cause && (cause.code === 'EMFILE' || cause.code === 'ENFILE');
}
