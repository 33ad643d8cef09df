import { randomBytes } from 'node:crypto';
import { apiKeyPrefix, digestApiKey, generateApiKey } from '../../auth/api-key.ts';
import { deriveVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES, type ScramVerifier } from '../../auth/scram.ts';
import type { NewApiKey } from '../../catalog/keys/credential.ts';
import { newKeyId } from './random-ids.ts';

export interface MintedKey {
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  /** The part that is stored. */
  readonly record: NewApiKey;
}

/** All keys of an organization share these, because SCRAM sends the salt before the server knows which key the client has. */
export type SaltOfKeys = Pick<ScramVerifier, 'salt' | 'iterations'>;

/** @param like the salt and iterations of the organization's present key; undefined: it has none yet */
export async function mintKey(like?: SaltOfKeys): Promise<MintedKey> {
  const apiKey = generateApiKey();
  const { salt, iterations } = like ?? { salt: randomBytes(SCRAM_SALT_BYTES), iterations: SCRAM_ITERATIONS };
  const verifier = await deriveVerifier(apiKey, salt, iterations);
  return { apiKey, record: { id: newKeyId(), prefix: apiKeyPrefix(apiKey), digest: digestApiKey(apiKey), verifier } };
}
