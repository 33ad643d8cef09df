import { computed, signal } from '@preact/signals';
import { type ApiError, asApiError, call, setKey, whenUnauthorized } from '../api/client.ts';

export type Scope = 'admin' | 'write' | 'data' | 'read';

/** Whether the key works as the owner of the data. Keys with the scopes data and read change neither the schema nor saved queries. */
export function isOwner(): boolean {
  const scope = me.value?.key.scope;
  return scope !== 'data' && scope !== 'read';
}

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

/** Whose data is shown; undefined before somebody has signed in. */
export const me = signal<Me | undefined>(undefined);

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

const KEY_HOURS = 12;

/** A key that the page has been given for itself. */
interface OwnKey {
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
async function ownKeyFor(apiKey: string, { expiresAt, networks }: EnteredKey): Promise<OwnKey | undefined> {
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
function ownKeyForToken(token: string): Promise<OwnKey> {
  // Repeated, it does nothing: the token works once.
  return call('POST', 'api/auth/console', { key: null, body: { token, name: ownKeyName() }, isSafe: true });
}

function ownKeyName(): string {
  return `console, ${browserName()}`;
}

/** It ends by itself where this fails. */
async function revoke({ apiKey, keyId }: OwnKey): Promise<void> {
  await call('DELETE', `api/keys/${keyId}`, { key: apiKey, outlivesPage: true }).catch(() => undefined);
}

/** `postern dev` prints such an address; it signs in once. */
const ADDRESS = /^#\/sign-in\/([\w-]+)$/;

let token: string | undefined;

/** Takes the token out of the address at once, so that it stays in no history. @returns whether there was one */
export function takeSignInToken(): boolean {
  const found = ADDRESS.exec(location.hash)?.[1];
  if (found === undefined) return false;
  token = found;
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}

function hasSignInToken(): boolean {
  return token !== undefined;
}

/** Uses the token, and forgets it unless there was no answer or it may be tried again. */
async function useSignInToken<T>(use: (token: string) => Promise<T>): Promise<T> {
  const used = token ?? '';
  try {
    const result = await use(used);
    token = undefined;
    return result;
  } catch (error) {
    if (!asApiError(error).isRetryable) token = undefined;
    throw error;
  }
}

/*
 * What lasts over a reload: only in this tab, and only when somebody has chosen to stay signed in. Nothing is ever written to
 * localStorage but the theme.
 */

const PREFIX = 'postern.';
let isKept = false;

/** Whether texts are kept from now on. */
function keepTexts(keep: boolean): void {
  isKept = keep;
  if (!keep) forgetTexts();
}

export function keepText(name: string, text: string): void {
  if (!isKept) return;
  try {
    sessionStorage.setItem(PREFIX + name, text);
  } catch {
    // It is full, or the browser has none: then it lasts as long as the page.
  }
}

export function keptText(name: string): string | undefined {
  try {
    return sessionStorage.getItem(PREFIX + name) ?? undefined;
  } catch {
    return undefined;
  }
}

function forgetText(name: string): void {
  try {
    sessionStorage.removeItem(PREFIX + name);
  } catch {
    // There is none.
  }
}

function forgetTexts(): void {
  try {
    sessionStorage.clear();
  } catch {
    // There is none.
  }
}

/** As people call it: the console's key is named by it. */
export function browserName(agent: string = navigator.userAgent): string {
  const names: readonly (readonly [RegExp, string])[] = [
    [/Edg\//, 'Edge'],
    [/OPR\//, 'Opera'],
    [/Firefox\//, 'Firefox'],
    [/Chrome\//, 'Chromium'],
    [/Safari\//, 'Safari'],
  ];
  return names.find(([pattern]) => pattern.test(agent))?.[1] ?? 'browser';
}

const IDLE_MAX_MS = 30 * 60_000;
const CHECK_EVERY_MS = 15_000;

/** Locks the page when nobody has touched it for half an hour. */
export function lockWhenIdle(): void {
  let touchedAt = Date.now();
  for (const event of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart']) {
    addEventListener(event, () => (touchedAt = Date.now()), { passive: true, capture: true });
  }
  // A suspended machine has no timers: the clock is compared.
  setInterval(() => {
    if (Date.now() - touchedAt < IDLE_MAX_MS || !isSignedIn.value || lockedBecause.value !== undefined) return;
    lock('Nobody has used this page for 30 minutes.');
  }, CHECK_EVERY_MS);
}

/** What may be chosen as a time limit: milliseconds, where empty means what the server does by default, and how it is called. */
export function statementTimeoutChoices(offeredMs: readonly number[]): readonly (readonly [string, string])[] {
  const { statementTimeoutMs = 0, maxStatementTimeoutMs = 0 } = me.value?.limits ?? {};
  const others = offeredMs.filter((ms) => ms !== statementTimeoutMs && ms <= maxStatementTimeoutMs);
  return [
    ['', statementTimeoutMs === 0 ? 'time limit of the server' : atMost(statementTimeoutMs)],
    ...others.map((ms) => [String(ms), atMost(ms)] as const),
  ];
}

function atMost(ms: number): string {
  return ms % 60_000 === 0 ? `at most ${ms / 60_000} min` : `at most ${ms / 1_000} s`;
}
