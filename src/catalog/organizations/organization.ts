import type { ScramVerifier } from '../../auth/scram.ts';

/** Where an organization's data lives: which Postgres, which database and schema in it, and the role that owns what is there. */
export interface Placement {
  readonly kind: 'database' | 'schema';
  /** Name of the backing Postgres; `default` is the one the service was started on. */
  readonly cluster: string;
  readonly database: string;
  readonly schema: string;
  readonly role: string;
}

/** `provisioning`: recorded, its place not ready; `dropping`: being taken down. Neither can log in. */
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

/** An API key as the catalog keeps it: never the key itself. */
export interface ApiKey {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  readonly organizationId: string;
  /** The key's first characters, for people to tell keys apart. */
  readonly prefix: string;
  readonly createdAt: Date;
  readonly lastUsedAt: Date | null;
  readonly verifier: ScramVerifier;
}
