import { chmod, mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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
  const path = await mkdtemp(join((await hasRoom('/dev/shm')) ? '/dev/shm' : tmpdir(), 'postern-test-'));
  await chmod(path, 0o711);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

async function hasRoom(folder: string): Promise<boolean> {
  const found = await statfs(folder).catch(() => undefined);
  return found !== undefined && found.bavail * found.bsize >= ROOM_BYTES;
}
