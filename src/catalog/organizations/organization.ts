import type { ScramVerifier } from '../../auth/scram-verifier.ts';

/** Where an organization's data lives: the PostgreSQL server, the database and schema in it, and the role that owns them. */
export interface Placement {
  readonly kind: 'database' | 'schema';
  /** The name of the PostgreSQL server; `default` is the one that the service was started with. */
  readonly cluster: string;
  readonly database: string;
  readonly schema: string;
  readonly role: string;
}

/** `provisioning`: recorded, its database or schema is not ready; `dropping`: it is being dropped. Neither can log in. */
export type OrganizationStatus = 'provisioning' | 'active' | 'suspended' | 'dropping' | 'dropped';

export interface Organization {
  /** `org_` and 12 of `[a-z0-9]`: also its wire user, wire database, Postgres role and database or schema. */
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly status: OrganizationStatus;
  readonly createdAt: Date;
  readonly placement: Placement;
}

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
