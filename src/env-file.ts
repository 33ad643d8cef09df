import { readFile } from 'node:fs/promises';
import { replaceFile } from './embedded/data-directory.ts';
import { hasCode } from './system-errors.ts';

/** A file of variables for shells and for what reads such files, such as `node --env-file`. */
export interface EnvFile {
  /** Whether Postern has written it, or it is not there: only then it may be written. */
  readonly isOurs: boolean;
  /** Empty if it is not ours. */
  readonly variables: ReadonlyMap<string, string>;
}

const HEADING = '# Written by postern dev, which replaces this file at each start. It holds a key: keep it out of version control.';

export async function readEnvFile(path: string): Promise<EnvFile> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => (hasCode(error, 'ENOENT') ? undefined : ''));
  if (text === undefined) return { isOurs: true, variables: new Map() };
  if (!text.startsWith(`${HEADING}\n`)) return { isOurs: false, variables: new Map() };
  const lines = text.matchAll(/^(\w+)=(.*)$/gm);
  return { isOurs: true, variables: new Map([...lines].map(([, name = '', value = '']) => [name, value])) };
}

/** For its owner only. No value may need quotes. */
export async function writeEnvFile(path: string, variables: Readonly<Record<string, string>>): Promise<void> {
  const lines = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
  await replaceFile(path, `${[HEADING, ...lines].join('\n')}\n`, 0o600);
}
