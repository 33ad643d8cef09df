import { useState } from 'preact/hooks';
import { asApiError } from '../../api/api-error.ts';
import { Button } from '../../parts/button.tsx';
import { Field } from '../../parts/fields.tsx';
import { type SignedUp, signUp } from './sign-up.ts';

export function SignUpForm({ onSignedUp }: { readonly onSignedUp: (made: SignedUp) => void }) {
  const [name, setName] = useState('');
  const [email, setEmail] = useState('');
  const [invite, setInvite] = useState('');
  const [isInviteAsked, askInvite] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      onSignedUp(await signUp(name, email, invite.trim()));
    } catch (thrown) {
      const apiError = asApiError(thrown);
      if (apiError.problem.code.startsWith('invite_')) askInvite(true);
      setError(apiError.message);
    }
    setBusy(false);
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      <Field label="Name of the organization" value={name} onInput={setName} autocomplete="organization" placeholder="Acme" isRequired />
      <Field
        label="E-mail address"
        type="email"
        value={email}
        onInput={setEmail}
        autocomplete="email"
        placeholder="a@acme.test"
        isRequired
      />
      {isInviteAsked && <Field label="Invitation" value={invite} onInput={setInvite} isMono isRequired />}
      {error !== undefined && (
        <p class="bad" role="alert">
          {error}
        </p>
      )}
      <Button kind="primary" type="submit" isBusy={isBusy}>
        Sign up
      </Button>
    </form>
  );
}
