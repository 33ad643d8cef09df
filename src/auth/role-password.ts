import { createHmac } from 'node:crypto';
import { deriveVerifier, formatVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from './scram-verifier.ts';

/** The password of a Postgres role that only Postern uses. It is not stored; it is derived from the secret each time. */
export function rolePassword(secret: string, role: string): string {
  return createHmac('sha256', secret).update(`postern role password\0${role}`).digest('base64url');
}

/**
 * The verifier for `CREATE ROLE … PASSWORD`, so that the server never sees or logs the password itself. The salt is
 * derived too: a role has the same verifier every time, so a comparison tells whether it has been set.
 */
export async function roleVerifier(secret: string, role: string): Promise<string> {
  const salt = createHmac('sha256', secret).update(`postern role salt\0${role}`).digest().subarray(0, SCRAM_SALT_BYTES);
  return formatVerifier(await deriveVerifier(rolePassword(secret, role), salt, SCRAM_ITERATIONS));
}
