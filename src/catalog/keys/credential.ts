import type { ScramVerifier } from '../../auth/scram.ts';
import type { Organization } from '../organizations/organization.ts';
import type { ApiKey } from './api-key.ts';

/** All keys of an organization share these, because SCRAM sends the salt before the server knows which key the client has. */
export type SaltOfKeys = Pick<ScramVerifier, 'salt' | 'iterations'>;

/** Why a key is no longer valid. */
export type KeyEnd = 'rotated' | 'revoked' | 'expired';

/** A key that is no longer valid. A login with it fails, with an error that says why. */
export interface FormerKey {
  readonly id: string;
  readonly organizationId: string;
  readonly prefix: string;
  readonly end: KeyEnd;
  readonly endedAt: Date;
}

/** A former key that a SCRAM exchange can recognize: it has the same salt and iterations as the live ones. */
export interface ProvableFormerKey extends FormerKey {
  readonly storedKey: Buffer;
}

/**
 * A live key and its organization. There is one object for a live key as long as something refers to it or its
 * signal. `revoked` aborts with a ServiceError when the key ends or its networks change (`key_revoked`), or the organization may no
 * longer log in (`organization_suspended`, `key_revoked`). The credential of a suspended organization is already aborted,
 * so that a client that has proven the key gets the reason. Check `revoked` before accepting any login.
 */
export interface Credential {
  readonly organization: Organization;
  readonly key: ApiKey;
  readonly revoked: AbortSignal;
}

/** What a SCRAM exchange with an organization needs. */
export interface OrganizationCredentials {
  readonly organization: Organization;
  readonly salt: SaltOfKeys;
  /** The live keys, the oldest first. */
  readonly live: readonly Credential[];
  /** The last few former keys, the latest first. */
  readonly former: readonly ProvableFormerKey[];
}
