import { call } from '../../api/client.ts';
import { me, type Scope } from '../../session/session.ts';

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
  data: 'run SQL that reads and changes rows under the rules of row security, and changes nothing else',
  read: 'run SQL that only reads',
};

/** Whether this page uses it. */
export function isOfThisPage({ keyId }: Key): boolean {
  return me.value?.key.keyId === keyId;
}

/** How long a key is to be valid, as it is chosen. */
type Lifetime = 'never' | 'hour' | 'day' | 'month' | 'quarter' | 'year' | 'until';

export const LIFETIMES: readonly (readonly [Lifetime, string])[] = [
  ['never', 'does not expire'],
  ['hour', 'in an hour'],
  ['day', 'in 24 hours'],
  ['month', 'in 30 days'],
  ['quarter', 'in 90 days'],
  ['year', 'in 365 days'],
  ['until', 'at a time …'],
];

const HOURS: Readonly<Partial<Record<Lifetime, number>>> = { hour: 1, day: 24, month: 720, quarter: 2_160, year: 8_760 };

export interface Expiry {
  readonly lifetime: Lifetime;
  /** What a `datetime-local` field holds: the time of this browser. */
  readonly until: string;
}

export function expiryOf(expiresAt: string | null): Expiry {
  return expiresAt === null ? { lifetime: 'never', until: '' } : { lifetime: 'until', until: toLocal(new Date(expiresAt)) };
}

/** @returns RFC 3339; null: it does not expire; undefined: there is no such time */
export function instantOf({ lifetime, until }: Expiry, now = Date.now()): string | null | undefined {
  if (lifetime === 'never') return null;
  const hours = HOURS[lifetime];
  const at = hours === undefined ? new Date(until) : new Date(now + hours * 3_600_000);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** `2025-01-31T09:30`, without the offset. */
function toLocal(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
