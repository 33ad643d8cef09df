import type { ApiKey, Organization } from '../catalog/organization.ts';

/** An authenticated caller: the organization, the key it came with, and a signal that ends everything opened with that key. */
export interface Tenant {
  readonly organization: Organization;
  readonly key: Omit<ApiKey, 'verifier'>;
  /** Aborts with a ServiceError (57P01, or 28000 when suspended) when the key is rotated away or the organization suspended. */
  readonly revoked: AbortSignal;
}
