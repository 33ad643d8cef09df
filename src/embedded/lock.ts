import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { EmbeddedError, hasCode } from './error.ts';
import { startOf } from './process-identity.ts';

const holderSchema = z.object({ pid: z.int().positive(), startedAt: z.string() });
type Holder = z.output<typeof holderSchema>;

export interface FolderLock {
  release(): Promise<void>;
}

/**
 * Takes a folder for this process alone. The lock is a numbered file that names its holder; a file whose holder is dead is
 * never removed to make way, which two could do at once, but followed by the next number, which only one can create.
 * @throws EmbeddedError when a living process holds it
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
      // Looks again, now that our own can be seen: of two who come at once, at least one finds the other.
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
    throw new EmbeddedError(`data directory ${folder} is in use by another Postern (process ${holder.pid})`);
  }
}

/** @returns false when the file is there already */
async function create(file: string, content: string): Promise<boolean> {
  try {
    await writeFile(file, content, { flag: 'wx' });
    return true;
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false;
    throw error;
  }
}

/** A file that is empty or makes no sense was left by a crash, or its writer has yet to look at ours. */
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
