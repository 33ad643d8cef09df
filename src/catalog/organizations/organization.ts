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
  /** Of a clone, as far as keys are concerned: the organization that it is a copy of. */
  readonly sourceId?: string;
}
