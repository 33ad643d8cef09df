import { randomBytes } from 'node:crypto';
import { generateToken, isWellFormedToken } from './checksummed-token.ts';

const PREFIX = 'inv_';

/** An invitation to sign up is made like a key, and stored as a digest too. */
export function generateInvitation(): string {
  return generateToken(PREFIX, randomBytes);
}

export function isWellFormedInvitation(text: string): boolean {
  return isWellFormedToken(PREFIX, text);
}
