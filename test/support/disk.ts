import { execFile } from 'node:child_process';
import { mkdir, open, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const MiB = 1024 * 1024;

/** A small disk of a test's own. */
export interface OwnDisk {
  readonly folder: string;
  unmount(): Promise<void>;
}

/** @returns undefined where this user may not mount one */
export async function mountDisk(folder: string, megabytes: number): Promise<OwnDisk | undefined> {
  await mkdir(folder);
  return run('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0755`, 'none', folder]).then(
    () => ({
      folder,
      async unmount() {
        await run('umount', [folder]);
      },
    }),
    () => undefined,
  );
}

/** Takes space, in a file `filler`, until so much is free; without a number, all. */
export async function fill(folder: string, freeBytes = 0): Promise<void> {
  const { bsize, bavail } = await statfs(folder);
  const file = await open(join(folder, 'filler'), 'a');
  try {
    const chunk = Buffer.alloc(MiB, 1);
    for (let left = bavail * bsize - freeBytes; left > 0; left -= chunk.length)
      await file.writeFile(chunk.subarray(0, Math.min(left, MiB)));
  } finally {
    await file.close();
  }
}
