import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseCommand } from '../../src/admin/admin.ts';
import { openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { makeScratch } from './scratch.ts';
import { testVariables } from './service.ts';

/** Runs `postern admin …` in this process. @returns what it prints */
export async function runAdmin(settings: Readonly<Record<string, string>>, words: readonly string[]): Promise<string> {
  const session = await openOperator(readConfig({ ...testVariables(), ...settings }));
  try {
    const outcome = await parseCommand(words)(session, async () => undefined);
    return typeof outcome === 'string' ? outcome : outcome.text;
  } finally {
    await session.close();
  }
}

/** Where the URLs of clusters are kept. */
export interface UrlFiles {
  /** @returns what `cluster add` takes */
  keep(name: string, url: string): Promise<string>;
  remove(): Promise<void>;
}

export async function makeUrlFiles(): Promise<UrlFiles> {
  const scratch = await makeScratch();
  return {
    async keep(name, url) {
      const path = join(scratch.path, name);
      await writeFile(path, `${url}\n`, { mode: 0o600 });
      return `file:${path}`;
    },
    remove: () => scratch.remove(),
  };
}
