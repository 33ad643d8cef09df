import type { FormerKey } from '../../catalog/keys/credential.ts';
import { ServiceError } from '../../errors.ts';

/** A client used a key that was replaced. Only a client that has sent it, or proved to have it, gets this error. */
export class FormerKeyError extends ServiceError {
  readonly key: FormerKey;

  constructor(key: FormerKey) {
    super('unauthorized', `this API key was rotated at ${key.rotatedAt.toISOString()}`, {
      hint: 'Use the new key. It was shown once, when this one was rotated.',
    });
    this.key = key;
  }
}
