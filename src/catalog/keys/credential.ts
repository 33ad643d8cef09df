import type { ScramVerifier } from '../../auth/scram.ts';
import type { ApiKey, Organization } from '../organizations/organization.ts';

/** A key as it is handed to the catalog: everything that is stored of it, never the key itself. */
export interface NewApiKey {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  /** The key's first characters, for people to tell keys apart. */
  readonly prefix: string;
  /** SHA-256 of the key. */
  readonly digest: Buffer;
  readonly verifier: ScramVerifier;
}

/** A key that was replaced. It opens nothing; whoever shows it, or proves to have it, may be told so. */
export interface FormerKey {
  readonly id: string;
  readonly organizationId: string;
  readonly prefix: string;
  readonly rotatedAt: Date;
}

/** As far as a SCRAM exchange can tell it: made with the same salt and iterations as the live one. */
export interface ProvableFormerKey extends FormerKey {
  readonly storedKey: Buffer;
}

/**
 * A live key and the organization it opens. There is one object for a live key for as long as anybody holds it (or its
 * signal). `revoked` aborts with a ServiceError when the key is rotated away (`key_revoked`) or the organization may no
 * longer log in (`organization_suspended`, `key_revoked`). A suspended organization's credential comes already aborted,
 * so that whoever has proven the key can be told why: always look at `revoked` before letting anybody in.
 */
export interface Credential {
  readonly organization: Organization;
  readonly key: ApiKey;
  /** The last few before it, the latest first. */
  readonly former: readonly ProvableFormerKey[];
  readonly revoked: AbortSignal;
}
