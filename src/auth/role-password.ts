import { createHmac } from 'node:crypto';
import { deriveVerifier, formatVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from './scram.ts';

/** The password of a Postgres role that only Postern logs in as. Nothing is stored: whoever has the secret can derive it again. */
export function rolePassword(secret: string, role: string): string {
  return createHmac('sha256', secret).update(`postern role password\0${role}`).digest('base64url');
}

/**
 * What `CREATE ROLE … PASSWORD` takes, so that the server never sees, and never logs, the password itself. The salt is
 * derived too: the same role has the same verifier every time, and whether it is in place can be told by comparing.
 */
export async function roleVerifier(secret: string, role: string): Promise<string> {
  const salt = createHmac('sha256', secret).update(`postern role salt\0${role}`).digest().subarray(0, SCRAM_SALT_BYTES);
  return formatVerifier(await deriveVerifier(rolePassword(secret, role), salt, SCRAM_ITERATIONS));
}
