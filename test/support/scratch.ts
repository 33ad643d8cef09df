import { chmod, mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import { freemem, tmpdir } from 'node:os';
import { join } from 'node:path';

const MEMORY = '/dev/shm';
const PREFIX = 'postern-test-';
/** A cluster with a few hundred databases is a few gigabytes. */
const ROOM_BYTES = 8 * 1024 ** 3;

export interface Scratch {
  readonly path: string;
  remove(): Promise<void>;
}

/**
 * A folder for a test's files, in memory where there is room: making databases is mostly writing files. When the tests run as
 * root their servers run as another user, who can get through it.
 */
export async function makeScratch(): Promise<Scratch> {
  await removeLeftovers();
  const path = await mkdtemp(join((await hasRoom()) ? MEMORY : tmpdir(), `${PREFIX}${process.pid}-`));
  await chmod(path, 0o711);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

/** What is in memory counts as used there until it is removed, also that of runs that were killed. */
async function removeLeftovers(): Promise<void> {
  const names = await readdir(MEMORY).catch(() => []);
  const left = names.filter((name) => name.startsWith(PREFIX) && !isRunning(Number(name.slice(PREFIX.length).split('-')[0])));
  // Those of other users stay.
  await Promise.allSettled(left.map((name) => rm(join(MEMORY, name), { recursive: true, force: true })));
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

async function hasRoom(): Promise<boolean> {
  const found = await statfs(MEMORY).catch(() => undefined);
  return found !== undefined && Math.min(found.bavail * found.bsize, freemem()) >= ROOM_BYTES;
}
