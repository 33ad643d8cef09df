import { computed, signal } from '@preact/signals';
import { type ApiError, asApiError } from '../api/api-error.ts';
import { call, setKey, whenUnauthorized } from '../api/client.ts';
import { type OwnKey, ownKeyFor, ownKeyForToken, revoke } from './exchange-key.ts';
import { type Me, me } from './me.ts';
import { forgetText, forgetTexts, keepText, keepTexts, keptText } from './session-storage.ts';
import { hasSignInToken, useSignInToken } from './token-in-address.ts';

/** Why a key is asked for, while the screen and what was typed there stay. */
export const lockedBecause = signal<string | undefined>(undefined);
export const isSignedIn = computed(() => me.value !== undefined);

/** Why the address that should have signed in did not. */
export const refusedAddress = signal<ApiError | undefined>(undefined);

const KEY_TEXT = 'key';

let key: string | undefined;
/** A key that this page has made for itself, and revokes. */
let ownKeyId: string | undefined;
let staysSignedIn = false;
let waiting: ((isRenewed: boolean) => void)[] = [];

/** Signs in by an address that does so once, or goes on after a reload, where that was chosen. */
export async function resume(): Promise<void> {
  if (hasSignInToken() && (await enterOnce())) return;
  const kept = keptText(KEY_TEXT);
  if (kept === undefined) return;
  try {
    const [own = '', apiKey = ''] = kept.split(' ');
    keepTexts(true);
    await begin(apiKey, own || undefined, true);
  } catch (error) {
    if (asApiError(error).problem.status === 401) forgetTexts();
    else throw error;
  }
}

/**
 * Signs in. An administrator's key is exchanged at once for one of the console's own, which ends by itself, and forgotten.
 * @throws ApiError when the key is refused
 */
export async function enter(apiKey: string, stay: boolean): Promise<void> {
  const whose = await call<Me>('GET', 'api/auth/me', { key: apiKey });
  checkOrganization(whose);
  if (whose.key.scope !== 'admin') return begin(apiKey, undefined, stay, whose);
  const made = await ownKeyFor(apiKey, whose.key);
  // Not over a reload: only a key of the page's own is kept there.
  await (made === undefined ? begin(apiKey, undefined, false, whose) : begin(made.apiKey, made.keyId, stay));
}

/**
 * Exchanges the token of an address that signs in once for a key of the page's own.
 * @returns false if it was refused; {@link refusedAddress} then says why
 * @throws ApiError when there was no answer; the token is then kept for another attempt
 */
export async function enterOnce(): Promise<boolean> {
  refusedAddress.value = undefined;
  try {
    const made = await useSignInToken(ownKeyForToken);
    await beginWith(made);
    return true;
  } catch (error) {
    if (hasSignInToken()) throw error;
    refusedAddress.value = asApiError(error);
    return false;
  }
}

async function beginWith(made: OwnKey): Promise<void> {
  try {
    const whose = await call<Me>('GET', 'api/auth/me', { key: made.apiKey });
    checkOrganization(whose);
    await begin(made.apiKey, made.keyId, false, whose);
  } catch (error) {
    void revoke(made);
    throw error;
  }
}

/** A locked page shows the data of one organization. */
function checkOrganization({ organizationId, orgName }: Me): void {
  if (me.value !== undefined && me.value.organizationId !== organizationId)
    throw new Error(`this key is of another organization, ${orgName}: sign out first`);
}

async function begin(apiKey: string, own: string | undefined, stay: boolean, known?: Me): Promise<void> {
  const whose = known ?? (await call<Me>('GET', 'api/auth/me', { key: apiKey }));
  key = apiKey;
  ownKeyId = own;
  staysSignedIn = stay;
  setKey(apiKey);
  keepTexts(stay);
  keepText(KEY_TEXT, `${own ?? ''} ${apiKey}`);
  me.value = whose;
  unlock(true);
}

/** Whether the tab stays signed in over a reload. */
export function willStay(): boolean {
  return staysSignedIn;
}

/** Forgets the key, and keeps what is on the screen for whoever has one. */
export function lock(reason: string): void {
  if (lockedBecause.value === undefined) lockedBecause.value = reason;
  void revokeOwnKey();
  key = undefined;
  setKey(undefined);
  forgetText(KEY_TEXT);
}

/** Wipes everything; the page begins anew, so that nothing is left in memory. */
export async function signOut(): Promise<void> {
  await revokeOwnKey();
  // Whatever a screen writes while the page goes is not kept.
  keepTexts(false);
  location.hash = '';
  location.reload();
}

async function revokeOwnKey(): Promise<void> {
  const [own, apiKey] = [ownKeyId, key];
  ownKeyId = undefined;
  if (own !== undefined && apiKey !== undefined) await revoke({ apiKey, keyId: own });
}

/** Revokes the page's own key when the page goes for good, unless it is to go on after a reload. */
export function revokeWhenLeft(): void {
  addEventListener('pagehide', ({ persisted }) => {
    if (!persisted && !staysSignedIn) void revokeOwnKey();
  });
}

function unlock(isRenewed: boolean): void {
  lockedBecause.value = undefined;
  const asked = waiting;
  waiting = [];
  for (const go of asked) go(isRenewed);
}

/** Calls that were refused wait for a key, and are then made again. */
whenUnauthorized(async () => {
  if (me.value === undefined) return false;
  if (lockedBecause.value === undefined) lockedBecause.value = 'The key is no longer valid: it was replaced or revoked, or has expired.';
  return new Promise((resolve) => waiting.push(resolve));
});
