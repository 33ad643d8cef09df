import type { FormerKey, KeyEnd } from '../../catalog/credentials.ts';
import { ServiceError } from '../../errors.ts';

const ENDS: Readonly<Record<KeyEnd, readonly [message: string, hint: string]>> = {
  rotated: ['was rotated', 'Use the new key. It was shown once, when this one was rotated.'],
  revoked: ['was revoked', 'Use another key of the organization.'],
  expired: ['expired', 'Use another key of the organization.'],
};

/** A client used a key that is no longer valid. Only a client that has sent it, or proved to have it, gets this error. */
export class FormerKeyError extends ServiceError {
  readonly key: FormerKey;

  constructor(key: FormerKey) {
    const [message, hint] = ENDS[key.end];
    super('unauthorized', `this API key ${message} at ${key.endedAt.toISOString()}`, { hint });
    this.key = key;
  }
}
