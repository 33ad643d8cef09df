import { randomBytes } from 'node:crypto';
import { deriveVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from '../../auth/scram.ts';
import { apiKeyPrefix, digestApiKey, generateApiKey } from '../../auth/tokens.ts';
import type { SaltOfKeys } from '../../catalog/credentials.ts';
import type { NewApiKey } from '../../catalog/key-rows.ts';
import { newKeyId } from './organization-and-key-ids.ts';

export interface MintedKey {
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  /** The part that is stored. */
  readonly record: NewApiKey;
}

/** @param like the salt and iterations of the organization's keys; undefined: it has none yet */
export async function mintKey(like?: SaltOfKeys): Promise<MintedKey> {
  const apiKey = generateApiKey();
  const { salt, iterations } = like ?? { salt: randomBytes(SCRAM_SALT_BYTES), iterations: SCRAM_ITERATIONS };
  const verifier = await deriveVerifier(apiKey, salt, iterations);
  return { apiKey, record: { id: newKeyId(), prefix: apiKeyPrefix(apiKey), digest: digestApiKey(apiKey), verifier } };
}
