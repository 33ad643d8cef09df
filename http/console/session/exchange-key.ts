import { asApiError } from '../api/api-error.ts';
import { call } from '../api/client.ts';
import { browserName } from './browser-name.ts';

const KEY_HOURS = 12;

/** A key that the page has been given for itself. */
export interface OwnKey {
  readonly apiKey: string;
  readonly keyId: string;
}

/** What a key of the page's own takes over. */
interface EnteredKey {
  readonly expiresAt: string | null;
  readonly networks: readonly string[] | null;
}

/**
 * A key for this page, made with the key that was entered. It ends no later than that one, and works from nowhere else.
 * @returns undefined where the organization has as many keys as it may have: then one can be revoked in the page
 */
export async function ownKeyFor(apiKey: string, { expiresAt, networks }: EnteredKey): Promise<OwnKey | undefined> {
  const latest = Date.now() + KEY_HOURS * 3_600_000;
  const ends = new Date(expiresAt === null ? latest : Math.min(latest, Date.parse(expiresAt))).toISOString();
  const body = { name: ownKeyName(), scope: 'admin', expiresAt: ends, ...(networks === null ? {} : { networks }) };
  try {
    return await call<OwnKey>('POST', 'api/keys', { key: apiKey, body });
  } catch (error) {
    if (asApiError(error).problem.code === 'too_many_keys') return undefined;
    throw error;
  }
}

/** A key for this page, in exchange for the token of an address that signs in once. */
export function ownKeyForToken(token: string): Promise<OwnKey> {
  // Repeated, it does nothing: the token works once.
  return call('POST', 'api/auth/console', { key: null, body: { token, name: ownKeyName() }, isSafe: true });
}

function ownKeyName(): string {
  return `console, ${browserName()}`;
}

/** It ends by itself where this fails. */
export async function revoke({ apiKey, keyId }: OwnKey): Promise<void> {
  await call('DELETE', `api/keys/${keyId}`, { key: apiKey, outlivesPage: true }).catch(() => undefined);
}
