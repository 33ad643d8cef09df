import { ServiceError } from '../../errors.ts';
import type { OrganizationStatus } from '../organizations/organization.ts';
import type { KeyEnd } from './credential.ts';

const ENDS = { rotated: 'rotation', revoked: 'revocation', expired: 'expiry', changed: 'networks that have changed' };

/** Why the sessions of a key end: the key has ended, or may not be used from where it was. */
export function keyEnded(end: KeyEnd | 'changed'): ServiceError {
  return new ServiceError('key_revoked', `terminating connection due to API key ${ENDS[end]}`);
}

/** Sessions go on in the new placement, when their clients have connected again. */
export function moved(organizationId: string): ServiceError {
  return new ServiceError('shutting_down', `terminating connection because organization "${organizationId}" has been moved`, {
    retryAfterS: 1,
  });
}

/** Why an organization that is suspended or being dropped has no sessions. */
export function notActive(organizationId: string, status: OrganizationStatus): ServiceError {
  if (status === 'suspended') return new ServiceError('organization_suspended', `organization "${organizationId}" is suspended`);
  return new ServiceError('key_revoked', `terminating connection because organization "${organizationId}" is no longer active`);
}
