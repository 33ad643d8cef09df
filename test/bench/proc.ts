import { readFile, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { run } from './child.ts';

/** USER_HZ, which is 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;
const IDLE_WAIT_MS = 50;
const IDLE_WAITS_MAX = 100;
/** Of one wait: a tick, with room for what a float makes of it. */
const IDLE_SECONDS = 0.015;

/** Seconds of processor time that a process has used, all its threads together. @see proc_pid_stat(5) */
export async function cpuSeconds(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name, which may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user, system] = [fields[11], fields[12]].map(Number);
  return ((user ?? 0) + (system ?? 0)) / TICKS_PER_SECOND;
}

/** Has a process and its threads run on the first processor alone. @see taskset(1) */
export async function pinToFirst(pid: number): Promise<void> {
  await run('taskset', ['-acp', '0', String(pid)]);
}

/**
 * Has this process, and those that it starts from now on, run on all other processors.
 * @throws Error where there is none
 */
export async function leaveFirst(): Promise<void> {
  const last = availableParallelism() - 1;
  if (last < 1) throw new Error('there is one processor alone');
  await run('taskset', ['-acp', `1-${last}`, String(process.pid)]);
}

/** Waits until a process does next to nothing, for some seconds at most. */
export async function untilIdle(pid: number, signal: AbortSignal): Promise<void> {
  let [used, before] = [await cpuSeconds(pid), Number.NEGATIVE_INFINITY];
  for (let waits = 0; used - before > IDLE_SECONDS && waits < IDLE_WAITS_MAX; waits++) {
    await delay(IDLE_WAIT_MS, undefined, { signal });
    [used, before] = [await cpuSeconds(pid), used];
  }
}

/** Bytes of memory that a process has resident now. */
export function residentBytes(pid: number): Promise<number> {
  return statusBytes(pid, 'VmRSS');
}

/** The most that it had resident since the last {@link forgetPeak}. */
export function peakBytes(pid: number): Promise<number> {
  return statusBytes(pid, 'VmHWM');
}

/** @see proc_pid_clear_refs(5) */
export function forgetPeak(pid: number): Promise<void> {
  return writeFile(`/proc/${pid}/clear_refs`, '5');
}

async function statusBytes(pid: number, field: string): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024;
}
