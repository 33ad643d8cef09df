import type { ScramVerifier } from '../../auth/scram.ts';

/** What a key may do, each with what the next may: `admin` manage keys, `write` run SQL as the organization's role, `read` as its readers' role. */
export type KeyScope = 'admin' | 'write' | 'read';

/** The part of a key that its organization chooses. */
export interface KeyDetails {
  readonly name: string;
  readonly scope: KeyScope;
  readonly expiresAt: Date | null;
  /** The networks that it may be used from, in CIDR notation; null: from everywhere. */
  readonly networks: readonly string[] | null;
}

/** An API key as the catalog stores it, without the key itself. */
export interface ApiKey extends KeyDetails {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  readonly organizationId: string;
  /** The key's first characters, by which people distinguish keys. */
  readonly prefix: string;
  readonly createdAt: Date;
  /** The key that has made it; null: the sign-up or an operator. */
  readonly createdBy: string | null;
  readonly lastUsedAt: Date | null;
  /** The key that takes its place. This one is valid until `expiresAt`. */
  readonly replacedBy: string | null;
  readonly verifier: ScramVerifier;
}

/** A new key for the catalog: what is stored of it besides its details. The key itself is not stored. */
export interface NewApiKey {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  /** The key's first characters, by which people distinguish keys. */
  readonly prefix: string;
  /** SHA-256 of the key. */
  readonly digest: Buffer;
  readonly verifier: ScramVerifier;
}
