import { asApiError } from '../api/api-error.ts';
import { enterOnce, isSignedIn, lockedBecause, refusedAddress } from '../session/session.ts';
import { takeSignInToken } from '../session/token-in-address.ts';
import { say, sayError } from './toasts.tsx';

/** The address of a page may be one that signs in; and somebody may paste one into the address of a page that is open. */
export function followSignInAddresses(): void {
  takeSignInToken();
  addEventListener('hashchange', () => {
    if (takeSignInToken()) void signIn();
  });
}

async function signIn(): Promise<void> {
  if (isSignedIn.value && lockedBecause.value === undefined) return say('You are signed in already.');
  try {
    await enterOnce();
    // Where nobody is signed in, the screen shows it.
    if (isSignedIn.value && refusedAddress.value !== undefined) sayError(refusedAddress.value);
  } catch (error) {
    sayError(asApiError(error), () => void signIn());
  }
}
