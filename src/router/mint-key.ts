import { randomBytes } from 'node:crypto';
import { apiKeyPrefix, digestApiKey, generateApiKey } from '../auth/api-key.ts';
import { deriveVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from '../auth/scram.ts';
import type { NewApiKey } from '../catalog/credential.ts';
import { newKeyId } from './identifiers.ts';

export interface MintedKey {
  /** In the clear: shown once, kept nowhere. */
  readonly apiKey: string;
  /** What is kept of it. */
  readonly record: NewApiKey;
}

export async function mintKey(): Promise<MintedKey> {
  const apiKey = generateApiKey();
  const verifier = await deriveVerifier(apiKey, randomBytes(SCRAM_SALT_BYTES), SCRAM_ITERATIONS);
  return { apiKey, record: { id: newKeyId(), prefix: apiKeyPrefix(apiKey), digest: digestApiKey(apiKey), verifier } };
}
