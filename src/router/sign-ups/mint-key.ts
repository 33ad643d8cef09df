import { randomBytes } from 'node:crypto';
import { apiKeyPrefix, digestApiKey, generateApiKey } from '../../auth/api-key.ts';
import { deriveVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES, type ScramVerifier } from '../../auth/scram.ts';
import type { NewApiKey } from '../../catalog/keys/credential.ts';
import { newKeyId } from './identifiers.ts';

export interface MintedKey {
  /** In the clear: shown once, kept nowhere. */
  readonly apiKey: string;
  /** What is kept of it. */
  readonly record: NewApiKey;
}

/** What the keys of one organization have in common: SCRAM names the salt before it is known which key the client has. */
export type SaltOfKeys = Pick<ScramVerifier, 'salt' | 'iterations'>;

/** @param like of the organization's key so far; absent: it has none yet */
export async function mintKey(like?: SaltOfKeys): Promise<MintedKey> {
  const apiKey = generateApiKey();
  const { salt, iterations } = like ?? { salt: randomBytes(SCRAM_SALT_BYTES), iterations: SCRAM_ITERATIONS };
  const verifier = await deriveVerifier(apiKey, salt, iterations);
  return { apiKey, record: { id: newKeyId(), prefix: apiKeyPrefix(apiKey), digest: digestApiKey(apiKey), verifier } };
}
