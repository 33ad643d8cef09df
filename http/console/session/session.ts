import { computed, signal } from '@preact/signals';
import { call, useKey, whenUnauthorized } from '../api/client.ts';
import { type ApiError, asApiError } from '../api/problem.ts';
import { browserName } from './browser-name.ts';
import { forgetText, forgetTexts, keepText, keepTexts, keptText } from './session-storage.ts';
import { hasSignInToken, useSignInToken } from './sign-in-token.ts';

export type Scope = 'admin' | 'write' | 'read';

/** `GET /api/auth/me` */
export interface Me {
  readonly organizationId: string;
  readonly orgName: string;
  readonly email: string;
  readonly key: {
    readonly keyId: string;
    readonly prefix: string;
    readonly name: string;
    readonly scope: Scope;
    readonly expiresAt: string | null;
    readonly networks: readonly string[] | null;
  };
  readonly connection: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly database: string;
    readonly sslmode: string;
  };
  readonly connectionString: string;
  readonly limits: { readonly statementTimeoutMs: number; readonly maxStatementTimeoutMs: number; readonly maxStatements: number };
}

/** `POST /api/auth/signup` */
export interface SignedUp {
  readonly apiKey: string;
  readonly organizationId: string;
  readonly orgName: string;
  readonly connectionString: string;
}

/** Whose data is shown; undefined before somebody has signed in. */
export const me = signal<Me | undefined>(undefined);
/** Why a key is asked for, while the screen and what was typed there stay. */
export const lockedBecause = signal<string | undefined>(undefined);
export const isSignedIn = computed(() => me.value !== undefined);

/** Why the address that should have signed in did not. */
export const refusedAddress = signal<ApiError | undefined>(undefined);

const KEY_HOURS = 12;
const KEY_TEXT = 'key';

/** A key that the page has been given for itself. */
interface OwnKey {
  readonly apiKey: string;
  readonly keyId: string;
}

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
  const made = await exchange(apiKey, whose);
  // Not over a reload: only a key of the page's own is kept there.
  await (made === undefined ? begin(apiKey, undefined, false, whose) : begin(made.apiKey, made.keyId, stay));
}

/**
 * A key for this page, which ends no later than the one that was entered, and works from nowhere else.
 * @returns undefined where the organization has as many keys as it may have: then one can be revoked in the page
 */
async function exchange(apiKey: string, { key: { expiresAt, networks } }: Me): Promise<OwnKey | undefined> {
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

/**
 * Exchanges the token of an address that signs in once for a key of the page's own.
 * @returns false if it was refused; {@link refusedAddress} then says why
 * @throws ApiError when there was no answer; the token is then kept for another attempt
 */
export async function enterOnce(): Promise<boolean> {
  refusedAddress.value = undefined;
  try {
    const made = await useSignInToken((token) =>
      // Repeated, it does nothing: the token works once.
      call<OwnKey>('POST', 'api/auth/console', { key: null, body: { token, name: ownKeyName() }, isSafe: true }),
    );
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

function ownKeyName(): string {
  return `console, ${browserName()}`;
}

async function begin(apiKey: string, own: string | undefined, stay: boolean, known?: Me): Promise<void> {
  const whose = known ?? (await call<Me>('GET', 'api/auth/me', { key: apiKey }));
  key = apiKey;
  ownKeyId = own;
  staysSignedIn = stay;
  useKey(apiKey);
  keepTexts(stay);
  keepText(KEY_TEXT, `${own ?? ''} ${apiKey}`);
  me.value = whose;
  unlock(true);
}

export function signUp(orgName: string, email: string, invite: string): Promise<SignedUp> {
  return call('POST', 'api/auth/signup', { body: { orgName, email, ...(invite === '' ? {} : { invite }) } });
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
  useKey(undefined);
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

/** It ends by itself where this fails. */
async function revoke({ apiKey, keyId }: OwnKey): Promise<void> {
  await call('DELETE', `api/keys/${keyId}`, { key: apiKey, outlivesPage: true }).catch(() => undefined);
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
