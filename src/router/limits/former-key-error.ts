import type { FormerKey } from '../../catalog/keys/credential.ts';
import { ServiceError } from '../../errors.ts';

/** Somebody goes on with a key that was replaced. Only who has shown it, or proved to have it, is told. */
export class FormerKeyError extends ServiceError {
  readonly key: FormerKey;

  constructor(key: FormerKey) {
    super('unauthorized', `this API key was rotated at ${key.rotatedAt.toISOString()}`, {
      hint: 'Use the key that took its place: it was shown once, to whoever rotated this one.',
    });
    this.key = key;
  }
}
