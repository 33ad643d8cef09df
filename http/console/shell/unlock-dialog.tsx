import { Button } from '../parts/button.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { KeyForm } from '../screens/sign-in/key-form.tsx';
import { me } from '../session/me.ts';
import { lockedBecause, signOut } from '../session/session.ts';

/** Asks for a key over the screen, which stays as it is. */
export function UnlockDialog() {
  const reason = lockedBecause.value;
  if (reason === undefined) return null;
  return (
    <Dialog title={`Key for ${me.value?.orgName ?? 'the organization'}`} class="unlock">
      <p>{reason} What you have typed is kept.</p>
      <KeyForm action="Go on" />
      <Button kind="quiet" onClick={() => void signOut()}>
        Sign out, and forget everything
      </Button>
    </Dialog>
  );
}
