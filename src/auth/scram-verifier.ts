import { pbkdf2, randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { saslprep } from './saslprep.ts';
import { hmacSha256, sha256 } from './sha256.ts';

/**
 * What a server stores to verify a password without knowing it (RFC 5802 section 3).
 * @see https://www.postgresql.org/docs/current/sasl-authentication.html#SASL-SCRAM-SHA-256
 */
export interface ScramVerifier {
  readonly iterations: number;
  readonly salt: Buffer;
  /** SHA-256 of the client's key; 32 bytes. */
  readonly storedKey: Buffer;
  /** Makes the ServerSignature, which proves to the client that the server has the verifier; 32 bytes. */
  readonly serverKey: Buffer;
}

/** Every verifier here is made with these, as in Postgres: mock verifiers must look like real ones. */
export const SCRAM_ITERATIONS = 4096;
export const SCRAM_SALT_BYTES = 16;

/** A user who does not exist seems to have at most so many passwords. */
const MOCK_VERIFIERS_MAX = 8;
/** A digest of nothing: no client can prove that it knows the key. */
const MOCK_KEY = randomBytes(32);

/**
 * @param salt {@link SCRAM_SALT_BYTES} random bytes
 * @param iterations {@link SCRAM_ITERATIONS}, unless there is a reason
 */
export async function deriveVerifier(password: string, salt: Buffer, iterations: number): Promise<ScramVerifier> {
  const saltedPassword = await promisify(pbkdf2)(saslprep(password), salt, iterations, 32, 'sha256');
  const storedKey = sha256(hmacSha256(saltedPassword, Buffer.from('Client Key')));
  return { iterations, salt, storedKey, serverKey: hmacSha256(saltedPassword, Buffer.from('Server Key')) };
}

/** The format of `pg_authid.rolpassword`; `CREATE ROLE … PASSWORD` accepts it in the place of a cleartext password. */
export function formatVerifier(verifier: ScramVerifier): string {
  const [salt, storedKey, serverKey] = [verifier.salt, verifier.storedKey, verifier.serverKey].map((part) => part.toString('base64'));
  return `SCRAM-SHA-256$${verifier.iterations}:${salt}$${storedKey}:${serverKey}`;
}

/**
 * Verifiers for a user who does not exist. No password matches them. Their salt and their number are the same at every attempt, as a
 * real user's are: half of these users seem to have one password, a quarter two, and so on.
 * @param secret known to this service alone: with it anybody could compute the salts and find out which users exist
 */
export function mockVerifiers(user: string, secret: Buffer): readonly [ScramVerifier, ...ScramVerifier[]] {
  const digest = hmacSha256(secret, Buffer.from(`scram mock salt\0${user}`));
  const salt = digest.subarray(0, SCRAM_SALT_BYTES);
  const mock = { iterations: SCRAM_ITERATIONS, salt, storedKey: MOCK_KEY, serverKey: MOCK_KEY };
  const count = Math.min(2 ** Math.clz32(digest.readUInt32BE(SCRAM_SALT_BYTES)), MOCK_VERIFIERS_MAX);
  return [mock, ...Array<ScramVerifier>(count - 1).fill(mock)];
}
