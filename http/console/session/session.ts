import { computed, signal } from '@preact/signals';
import { call, useKey, whenUnauthorized } from '../api/client.ts';
import { asApiError } from '../api/problem.ts';
import { browserName } from './browser-name.ts';
import { forgetText, forgetTexts, keepText, keepTexts, keptText } from './kept-text.ts';

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

const KEY_HOURS = 12;
const KEY_TEXT = 'key';
let key: string | undefined;
/** A key that this page has made for itself, and revokes. */
let ownKeyId: string | undefined;
let staysSignedIn = false;
let waiting: ((isRenewed: boolean) => void)[] = [];

/** Goes on after a reload, where that was chosen. */
export async function resume(): Promise<void> {
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
  const former = me.value;
  if (former !== undefined && former.organizationId !== whose.organizationId)
    throw new Error(`this key is of another organization, ${whose.orgName}: sign out first`);
  if (whose.key.scope !== 'admin') return begin(apiKey, undefined, stay, whose);
  const name = `console, ${browserName()}`;
  const expiresAt = new Date(Date.now() + KEY_HOURS * 3_600_000).toISOString();
  const made = await call<{ apiKey: string; keyId: string }>('POST', 'api/keys', {
    key: apiKey,
    body: { name, scope: 'admin', expiresAt },
  });
  await begin(made.apiKey, made.keyId, stay);
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
  forgetTexts();
  location.hash = '';
  location.reload();
}

async function revokeOwnKey(): Promise<void> {
  const [own, apiKey] = [ownKeyId, key];
  ownKeyId = undefined;
  if (own === undefined || apiKey === undefined) return;
  // It ends by itself where this fails.
  await call('DELETE', `api/keys/${own}`, { key: apiKey }).catch(() => undefined);
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
