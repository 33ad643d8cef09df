import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';
import { type BackendMessage, describeBackend } from './backend-message.ts';
import { encodeFrontend } from './frontend-message.ts';
import type { Target } from './target.ts';
import type { WireClient } from './wire-client.ts';

type Credentials = Pick<Target, 'user' | 'database' | 'password'>;

/** What a script may do differently from a well-behaved client, to see it refused. */
export interface ScramOverrides {
  /** SCRAM-SHA-256 by default. */
  readonly mechanism?: string;
  readonly password?: string;
  /** The name inside SCRAM, empty by default: the server goes by the startup packet's. */
  readonly user?: string;
  /** The GS2 header, `n,,` by default. */
  readonly gs2?: string;
  /** Channel binding data (`c=`), the base64 of the GS2 header by default. */
  readonly c?: string;
  /** Appended to the server's nonce. */
  readonly nonce?: string;
  /** Instead of the client's proof. */
  readonly proof?: string;
}

/**
 * StartupMessage, authentication, and everything up to the first ReadyForQuery.
 * @throws Error with the server's ErrorResponse
 */
export async function logIn(
  client: WireClient,
  target: Credentials,
  version: string,
  parameters: ReadonlyMap<string, string>,
): Promise<void> {
  const pairs = new Map([['user', target.user], ['database', target.database], ...parameters]);
  const words = [...pairs].map(([key, value]) => JSON.stringify(`${key}=${value}`));
  await client.write(encodeFrontend(`Startup ${version} ${words.join(' ')}`));
  const refused = await authenticate(client, target.password, {});
  let message = refused ?? (await client.read());
  while (typeof message === 'object' && message.type !== 'Z') {
    if (message.type === 'E') throw new Error(`login failed: ${describeBackend(message)}`);
    message = await client.read();
  }
  if (typeof message !== 'object') throw new Error(`login failed: ${message ?? 'no answer in time'}`);
}

/**
 * The client's side of SCRAM-SHA-256, from AuthenticationSASL through AuthenticationOk; messages before it
 * (NegotiateProtocolVersion) are passed over.
 * @see https://www.rfc-editor.org/rfc/rfc5802 and https://www.postgresql.org/docs/current/sasl-authentication.html
 * @returns undefined, or the message with which the server refused
 */
export async function authenticate(client: WireClient, password: string, overrides: ScramOverrides): Promise<BackendMessage | undefined> {
  const offer = await nextAuthentication(client);
  if (offer.type !== 'R' || offer.body.readInt32BE(0) === 0) return offer.type === 'R' ? undefined : offer;
  const gs2 = overrides.gs2 ?? 'n,,';
  const clientFirst = `n=${overrides.user ?? ''},r=${randomBytes(18).toString('base64')}`;
  await client.write(encodeFrontend(`SASLInitialResponse ${overrides.mechanism ?? 'SCRAM-SHA-256'} ${gs2}${clientFirst}`));
  const challenge = await nextAuthentication(client);
  if (challenge.type !== 'R') return challenge;
  const serverFirst = challenge.body.toString('utf8', 4);
  const [nonce = '', salt = '', iterations = ''] = ['r', 's', 'i'].map((key) => attribute(serverFirst, key));
  const binding = overrides.c ?? Buffer.from(gs2).toString('base64');
  const withoutProof = `c=${binding},r=${nonce}${overrides.nonce ?? ''}`;
  const keys = deriveKeys(overrides.password ?? password, salt, Number(iterations), `${clientFirst},${serverFirst},${withoutProof}`);
  await client.write(encodeFrontend(`SASLResponse ${withoutProof},p=${overrides.proof ?? keys.proof}`));
  const outcome = await nextAuthentication(client);
  if (outcome.type !== 'R') return outcome;
  if (attribute(outcome.body.toString('utf8', 4), 'v') !== keys.serverSignature)
    throw new Error('the server did not prove that it knows the key');
  const ok = await nextAuthentication(client);
  return ok.type === 'R' ? undefined : ok;
}

async function nextAuthentication(client: WireClient): Promise<BackendMessage> {
  for (;;) {
    const message = await client.read();
    if (typeof message !== 'object') throw new Error(`authentication failed: ${message ?? 'no answer in time'}`);
    if (message.type !== 'v') return message;
  }
}

function attribute(message: string, key: string): string {
  return (
    message
      .split(',')
      .find((part) => part.startsWith(`${key}=`))
      ?.slice(2) ?? ''
  );
}

function deriveKeys(password: string, salt: string, iterations: number, authMessage: string) {
  const salted = saltedPassword(password, salt, iterations);
  const clientKey = hmac(salted, 'Client Key');
  const signature = hmac(createHash('sha256').update(clientKey).digest(), authMessage);
  const proof = Buffer.from(clientKey.map((byte, index) => byte ^ (signature[index] ?? 0))).toString('base64');
  return { proof, serverSignature: hmac(hmac(salted, 'Server Key'), authMessage).toString('base64') };
}

const saltedPasswords = new Map<string, Buffer>();

/** The one slow step; the salt of a role stays, so that a run of many logins does it once. */
function saltedPassword(password: string, salt: string, iterations: number): Buffer {
  const key = `${iterations}:${salt}:${password}`;
  const known = saltedPasswords.get(key) ?? pbkdf2Sync(password, Buffer.from(salt, 'base64'), iterations, 32, 'sha256');
  saltedPasswords.set(key, known);
  return known;
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
