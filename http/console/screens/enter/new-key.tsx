import { useState } from 'preact/hooks';
import { urlOf } from '../../api/client.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock, saveFile } from '../../parts/copy.tsx';
import { Checkbox } from '../../parts/field.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { enter, type SignedUp } from '../../session/session.ts';

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
  return (
    <div class="form">
      <h2>{made.orgName} has a database</h2>
      <Notice tone="warning">
        <p>This key is shown only once. Whoever has it may do everything with {made.orgName}'s data.</p>
      </Notice>
      <CodeBlock text={made.apiKey} label="API key" />
      <Button icon="download" onClick={() => saveFile('.env', envOf(made))}>
        Download as .env
      </Button>
      <Checkbox label="I have kept the key" isChecked={isKept} onChange={setKept} />
      {error !== undefined && <ProblemNotice error={error} />}
      <Button kind="primary" isDisabled={!isKept} isBusy={isBusy} onClick={() => void goOn()}>
        Open the console
      </Button>
    </div>
  );
}

function envOf({ apiKey, organizationId, connectionString }: SignedUp): string {
  const apiUrl = urlOf('.').href.replace(/\/$/, '');
  return `DATABASE_URL=${connectionString}\nORG=${organizationId}\nAPI_KEY=${apiKey}\nAPI_URL=${apiUrl}\n`;
}
