import { useState } from 'preact/hooks';
import { asApiError } from '../../api/api-error.ts';
import { Button } from '../../parts/button.tsx';
import { Checkbox, Field } from '../../parts/fields.tsx';
import { enter, willStay } from '../../session/session.ts';

/** Takes a key, and forgets it as soon as it has one of its own. */
export function KeyForm({ action, initialKey = '' }: { readonly action: string; readonly initialKey?: string }) {
  const [apiKey, setKey] = useState(initialKey);
  const [stays, setStays] = useState(willStay());
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await enter(apiKey.trim(), stays);
      setKey('');
    } catch (thrown) {
      setError(asApiError(thrown).message);
    }
    setBusy(false);
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      <Field
        label="API key"
        type="password"
        value={apiKey}
        onInput={setKey}
        placeholder="pst_…"
        isMono
        isRequired
        error={error}
        hint="An administrator's key is exchanged for one that ends after 12 hours at most."
      />
      <Checkbox label="Stay signed in in this tab" isChecked={stays} onChange={setStays} />
      <Button kind="primary" type="submit" isBusy={isBusy}>
        {action}
      </Button>
    </form>
  );
}
