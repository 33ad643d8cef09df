import { call } from '../../api/client.ts';
import { me, type Scope } from '../../session/me.ts';

/** `GET /api/keys` */
export interface Key {
  readonly keyId: string;
  readonly prefix: string;
  readonly name: string;
  readonly scope: Scope;
  readonly createdAt: string;
  /** Null: the sign-up, or an operator. */
  readonly createdBy: string | null;
  readonly expiresAt: string | null;
  readonly networks: readonly string[] | null;
  readonly lastUsedAt: string | null;
  readonly replacedBy: string | null;
}

/** What of a key can be changed. */
export interface KeyDetails {
  readonly name: string;
  readonly expiresAt: string | null;
  readonly networks: readonly string[] | null;
}

/** A key of which nobody else knows the secret yet. */
export interface MadeKey {
  readonly apiKey: string;
  readonly name: string;
  readonly scope: Scope;
  /** Until when the key that it replaces stays valid; undefined where it replaces none. */
  readonly formerEndsAt?: string;
}

export async function listKeys(signal: AbortSignal): Promise<readonly Key[]> {
  const { keys } = await call<{ readonly keys: readonly Key[] }>('GET', 'api/keys', { signal });
  return keys;
}

export function createKey({ name, expiresAt, networks }: KeyDetails, scope: Scope): Promise<MadeKey> {
  const body = { name, scope, ...(expiresAt === null ? {} : { expiresAt }), ...(networks === null ? {} : { networks }) };
  return call('POST', 'api/keys', { body });
}

export function updateKey(keyId: string, changed: Partial<KeyDetails>): Promise<Key> {
  return call('PATCH', `api/keys/${keyId}`, { body: changed });
}

export async function rotateKey({ keyId, name, scope }: Key, graceSeconds: number): Promise<MadeKey> {
  interface Rotated {
    readonly apiKey: string;
    readonly previousKey: { readonly invalidatedAt: string };
  }
  const { apiKey, previousKey } = await call<Rotated>('POST', `api/keys/${keyId}/rotate`, { body: { graceSeconds } });
  return { apiKey, name, scope, formerEndsAt: previousKey.invalidatedAt };
}

export async function revokeKey({ keyId }: Key): Promise<void> {
  await call('DELETE', `api/keys/${keyId}`);
}

/** What a key with the scope may. */
export const SCOPE_MEANINGS: Readonly<Record<Scope, string>> = {
  admin: 'do everything, also with keys',
  write: 'run SQL as the owner of the data, and migrations, but neither manage keys nor read the audit log',
  read: 'run SQL that only reads',
};

/** Whether this page uses it. */
export function isOfThisPage({ keyId }: Key): boolean {
  return me.value?.key.keyId === keyId;
}
