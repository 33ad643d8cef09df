import { useState } from 'preact/hooks';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Field } from '../../parts/fields.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { nameError, replace, saveNew } from './saved-queries.ts';
import { openText, type QueryTab, type SavedLink, saveQuestion } from './sql-screen-state.ts';

export function SaveDialog() {
  const asked = saveQuestion.value;
  if (asked === undefined) return null;
  return asked.kind === 'name' ? <NameDialog tab={asked.tab} /> : <ConflictDialog tab={asked.tab} theirs={asked.theirs} />;
}

const close = () => {
  saveQuestion.value = undefined;
};

function NameDialog({ tab }: { readonly tab: QueryTab }) {
  const [name, setName] = useState('');
  const [description, setDescription] = useState(tab.saved.peek()?.description ?? '');
  const [isTaken, setTaken] = useState(false);
  const { error, isBusy, attempt } = useAttempt();
  const wrong = nameError(name);
  const save = () => attempt(async () => setTaken(!(await saveNew(tab, name.trim(), description))));
  const replaceIt = () =>
    attempt(() => replace(tab, { name: name.trim(), description: description.trim() || null, sql: '', tag: undefined }, undefined));
  return (
    <Dialog title="Save the query" onClose={close}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <Field
          label="Name"
          value={name}
          error={wrong}
          isRequired
          onInput={(next) => {
            setName(next);
            setTaken(false);
          }}
        />
        <Field label="Description" value={description} onInput={setDescription} hint="All keys of the organization see it." />
        {error !== undefined && <ProblemNotice error={error} />}
        {isTaken && (
          <Notice tone="warning" actions={<Button onClick={() => void replaceIt()}>Replace it</Button>}>
            <p>There is a query of this name already.</p>
          </Notice>
        )}
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" isBusy={isBusy} isDisabled={wrong !== undefined || name.trim() === '' || isTaken}>
            Save
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Somebody else has saved another text under the same name. */
function ConflictDialog({ tab, theirs }: { readonly tab: QueryTab; readonly theirs: SavedLink }) {
  const { error, isBusy, attempt } = useAttempt();
  return (
    <Dialog title={`“${theirs.name}” has been changed`} onClose={close}>
      <p>Somebody has saved another text since it was opened here. Yours is kept in its tab.</p>
      <CodeBlock label="Saved now" text={theirs.sql} />
      {error !== undefined && <ProblemNotice error={error} />}
      <footer>
        <Button onClick={close}>Cancel</Button>
        <Button
          onClick={() => {
            close();
            openText({ text: theirs.sql, saved: theirs });
          }}
        >
          Open theirs
        </Button>
        <Button kind="danger" isBusy={isBusy} onClick={() => void attempt(() => replace(tab, theirs, theirs.tag))}>
          Replace it with mine
        </Button>
      </footer>
    </Dialog>
  );
}

function useAttempt() {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const attempt = async (run: () => Promise<void>) => {
    setError(undefined);
    setBusy(true);
    try {
      await run();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return { error, isBusy, attempt };
}
