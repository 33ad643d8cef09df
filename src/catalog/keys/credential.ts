import type { ScramVerifier } from '../../auth/scram.ts';
import type { ApiKey, Organization } from '../organizations/organization.ts';

/** A new key for the catalog: everything that is stored of it. The key itself is not stored. */
export interface NewApiKey {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  /** The key's first characters, by which people distinguish keys. */
  readonly prefix: string;
  /** SHA-256 of the key. */
  readonly digest: Buffer;
  readonly verifier: ScramVerifier;
}

/** A key that was replaced. A login with it fails, with an error that says that the key was rotated. */
export interface FormerKey {
  readonly id: string;
  readonly organizationId: string;
  readonly prefix: string;
  readonly rotatedAt: Date;
}

/** A former key that a SCRAM exchange can recognize: it has the same salt and iterations as the live one. */
export interface ProvableFormerKey extends FormerKey {
  readonly storedKey: Buffer;
}

/**
 * A live key and its organization. There is one object for a live key as long as something refers to it or its
 * signal. `revoked` aborts with a ServiceError when the key is rotated (`key_revoked`) or the organization may no
 * longer log in (`organization_suspended`, `key_revoked`). The credential of a suspended organization is already aborted,
 * so that a client that has proven the key gets the reason. Check `revoked` before accepting any login.
 */
export interface Credential {
  readonly organization: Organization;
  readonly key: ApiKey;
  /** The last few former keys, the latest first. */
  readonly former: readonly ProvableFormerKey[];
  readonly revoked: AbortSignal;
}
