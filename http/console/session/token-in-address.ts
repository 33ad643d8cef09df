import { asApiError } from '../api/api-error.ts';

/** `postern dev` prints such an address; it signs in once. */
const ADDRESS = /^#\/sign-in\/([\w-]+)$/;

let token: string | undefined;

/** Takes the token out of the address at once, so that it stays in no history. @returns whether there was one */
export function takeSignInToken(): boolean {
  const found = ADDRESS.exec(location.hash)?.[1];
  if (found === undefined) return false;
  token = found;
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}

export function hasSignInToken(): boolean {
  return token !== undefined;
}

/** Uses the token, and forgets it unless there was no answer or it may be tried again. */
export async function useSignInToken<T>(use: (token: string) => Promise<T>): Promise<T> {
  const used = token ?? '';
  try {
    const result = await use(used);
    token = undefined;
    return result;
  } catch (error) {
    if (!asApiError(error).isRetryable) token = undefined;
    throw error;
  }
}
