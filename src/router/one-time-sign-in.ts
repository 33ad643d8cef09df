import { randomBytes, timingSafeEqual } from 'node:crypto';
import { digestApiKey } from '../auth/tokens.ts';
import { ServiceError } from '../errors.ts';

export const SIGN_IN_MINUTES = 10;

const TOKEN_BYTES = 32;
const HINT = 'Sign in with a key: API_KEY in .env.postern is one. The next start of postern dev prints another address.';

/** What a token stands for: a key that whoever opens the address acts with. */
interface SignInGrant {
  readonly organizationId: string;
  readonly apiKey: string;
}

interface Issued extends SignInGrant {
  readonly digest: Buffer;
  /** On the clock of `performance.now()`. */
  readonly expiresAt: number;
  isUsed: boolean;
}

type Redeemed =
  | SignInGrant
  /** The organization is known if the token was right once. */
  | { readonly refusal: ServiceError; readonly organizationId: string | undefined };

/**
 * The one-time address of the console that `postern dev` prints. Its token is in the memory of the process only, works once and for a few
 * minutes. No other start has one.
 */
export class ConsoleSignIn {
  readonly #now: () => number;
  #issued: Issued | undefined;

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Makes a token; the one before is not valid any more. */
  issue(grant: SignInGrant): string {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    this.#issued = { ...grant, digest: digestApiKey(token), expiresAt: this.#now() + SIGN_IN_MINUTES * 60_000, isUsed: false };
    return token;
  }

  /** Uses a token up. */
  redeem(token: string): Redeemed {
    const issued = this.#issued;
    if (issued === undefined || !timingSafeEqual(issued.digest, digestApiKey(token)))
      return refused('this address is not valid', undefined);
    const { organizationId, apiKey } = issued;
    if (issued.isUsed) return refused('this address works once, and has been used', organizationId);
    if (issued.expiresAt <= this.#now())
      return refused(`this address works once, within ${SIGN_IN_MINUTES} minutes of the start, which are over`, organizationId);
    issued.isUsed = true;
    return { organizationId, apiKey };
  }
}

function refused(message: string, organizationId: string | undefined): Redeemed {
  return { refusal: new ServiceError('unauthorized', message, { hint: HINT }), organizationId };
}
