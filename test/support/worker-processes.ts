import { readFile } from 'node:fs/promises';
import { eventually } from './eventually.ts';
import type { PosternProcess } from './process.ts';

/** How many workers have started so far. */
export function startsOf(postern: PosternProcess): number {
  return postern.log().filter(({ event }) => event === 'service.started').length;
}

export async function workerPids({ pid }: PosternProcess): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return children.trim().split(' ').map(Number);
}

/** Kills one, and returns when the others are known to be left. @returns what waits until it has been started again */
export async function killWorker(postern: PosternProcess): Promise<() => Promise<void>> {
  const before = startsOf(postern);
  const ends = () => postern.log().filter(({ msg }) => /^worker \d has ended/.test(String(msg))).length;
  const endsBefore = ends();
  const [first = 0] = await workerPids(postern);
  process.kill(first, 'SIGKILL');
  await eventually('the worker has ended', () => ends() > endsBefore);
  return () => eventually('it has been started again', () => startsOf(postern) > before);
}
