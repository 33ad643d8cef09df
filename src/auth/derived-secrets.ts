import { createHash, createHmac } from 'node:crypto';
import { deriveVerifier, formatVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from './scram.ts';

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

/** The length of an organization's schema name. */
const PREFIX_CHARACTERS = 16;

/** The secret that channel prefixes are derived from. It is kept in the shared database, where only the platform role can read it. */
export function channelSecret(secret: string): Buffer {
  return createHmac('sha256', secret).update('postern channels').digest();
}

/**
 * The prefix of an organization's channel names in the shared database. It is secret, so that no other organization can send
 * notifications on these channels. The server derives the same from the role that has logged in (`postern.server_channel`).
 */
export function channelsOf(channels: Buffer, role: string): string {
  return createHash('sha256').update(channels).update(role).digest('hex').slice(0, PREFIX_CHARACTERS);
}

/** The prefix up to edition 5. It was written into functions, where every role in the shared database could read it. */
export function formerChannelsOf(secret: string, role: string): string {
  return createHmac('sha256', secret).update(`channels of ${role}`).digest('hex').slice(0, PREFIX_CHARACTERS);
}
