import { useState } from 'preact/hooks';
import { Button } from '../../parts/button.tsx';
import { ShownKey } from '../../parts/copying/shown-key.tsx';
import { ProblemNotice } from '../../parts/notice.tsx';
import { enter } from '../../session/session.ts';
import type { SignedUp } from './sign-up.ts';

/** The first key, this once. */
export function NewKey({ made }: { readonly made: SignedUp }) {
  const [isKept, setKept] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const goOn = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await enter(made.apiKey, false);
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  const warning = `Whoever has it may do everything with ${made.orgName}'s data.`;
  return (
    <div class="form">
      <h2>{made.orgName} has a database</h2>
      <ShownKey {...made} warning={warning} isKept={isKept} onKept={setKept} />
      {error !== undefined && <ProblemNotice error={error} />}
      <Button kind="primary" isDisabled={!isKept} isBusy={isBusy} onClick={() => void goOn()}>
        Open the console
      </Button>
    </div>
  );
}
