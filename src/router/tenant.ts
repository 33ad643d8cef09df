import type { ApiKey, Organization } from '../catalog/organizations/organization.ts';

/** An authenticated caller: the organization, the key it came with, and a signal that ends everything opened with that key. */
export interface Tenant {
  readonly organization: Organization;
  readonly key: Omit<ApiKey, 'verifier'>;
  /** Stands before the names of its channels where it shares a database with others: a secret, so that nobody can speak on them. */
  readonly channels: string;
  /** What it calls there in place of pg_notify; undefined: that itself. */
  readonly pgNotify?: string | undefined;
  /** Aborts with a ServiceError (57P01, or 28000 when suspended) when the key is rotated away or the organization suspended. */
  readonly revoked: AbortSignal;
}
