import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasCode, reasonOf } from '../system-errors.ts';
import type { DataDirectory } from './data-directory.ts';
import { EmbeddedError } from './embedded-error.ts';
import { replaceFile } from './files-and-folders.ts';

const SECRET_MIN_CHARACTERS = 16;

/** @returns the secret; it is generated and stored (mode 0600) when there is none */
export async function ensureSecret({ path }: DataDirectory): Promise<string> {
  const known = await knownSecret(path);
  const secret = known ?? randomBytes(32).toString('base64url');
  if (known === undefined) await replaceFile(secretFile(path), `${secret}\n`, 0o600);
  return secret;
}

/**
 * @returns undefined when none has been stored yet
 * @throws EmbeddedError
 */
export async function knownSecret(path: string): Promise<string | undefined> {
  const file = secretFile(path);
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new EmbeddedError(`${file} cannot be read: ${reasonOf(error)}`);
  });
  const secret = text?.trim();
  if (secret !== undefined && secret.length < SECRET_MIN_CHARACTERS) {
    throw new EmbeddedError(`${file} holds less than ${SECRET_MIN_CHARACTERS} characters`);
  }
  return secret;
}

function secretFile(path: string): string {
  return join(path, 'secret');
}
