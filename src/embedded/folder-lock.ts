import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { hasCode } from '../system-errors.ts';
import { EmbeddedError } from './embedded-error.ts';
import { startOf } from './process-identity.ts';

const holderSchema = z.object({ pid: z.int().positive(), startedAt: z.string() });
type Holder = z.output<typeof holderSchema>;

export interface FolderLock {
  release(): Promise<void>;
}

/**
 * Locks a folder for this process. The lock is a numbered file that names its holder. A file whose holder has ended is
 * not replaced, because two processes could do that at the same time; the next number is created, which only one can do.
 * @throws EmbeddedError when a running process holds the lock
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  const startedAt = await startOf(process.pid);
  const me: Holder = { pid: process.pid, startedAt: startedAt ?? '' };
  for (;;) {
    const number = 1 + Math.max(0, ...(await lockNumbers(folder)));
    await refuseIfHeld(folder, number);
    const mine = lockFile(folder, number);
    if (!(await create(mine, JSON.stringify(me)))) continue;
    try {
      // Looks again after creating its own file: of two processes that start together, at least one finds the other's.
      await refuseIfHeld(folder, number);
    } catch (error) {
      await rm(mine, { force: true });
      throw error;
    }
    for (const older of await lockNumbers(folder)) if (older < number) await rm(lockFile(folder, older), { force: true });
    return { release: () => rm(mine, { force: true }) };
  }
}

async function refuseIfHeld(folder: string, except: number): Promise<void> {
  for (const number of await lockNumbers(folder)) {
    if (number === except) continue;
    const holder = await readHolder(lockFile(folder, number));
    if (holder === undefined || (await startOf(holder.pid)) !== holder.startedAt) continue;
    const advice = 'stop it, or set POSTERN_DATA_DIR to another folder';
    throw new EmbeddedError(`data directory ${folder} is in use by another Postern (process ${holder.pid}): ${advice}`);
  }
}

/** @returns false when the file exists already */
async function create(file: string, content: string): Promise<boolean> {
  try {
    await writeFile(file, content, { flag: 'wx' });
    return true;
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false;
    throw error;
  }
}

/** An empty or malformed file was left by a crash, or is being written by a process that has not looked for others yet. */
async function readHolder(file: string): Promise<Holder | undefined> {
  try {
    return holderSchema.safeParse(JSON.parse(await readFile(file, 'utf8'))).data;
  } catch {
    return undefined;
  }
}

async function lockNumbers(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  return names.flatMap((name) => /^postern\.lock\.(\d+)$/.exec(name)?.[1] ?? []).map(Number);
}

function lockFile(folder: string, number: number): string {
  return join(folder, `postern.lock.${number}`);
}
