import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { ProblemNotice } from '../../parts/notice.tsx';

export interface DialogFormProps {
  readonly title: string;
  readonly action: string;
  readonly isDangerous?: boolean;
  /** What it throws is shown, and the fields stay. */
  readonly onSubmit: () => Promise<void>;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A form over the screen, until it has gone through. */
export function DialogForm({ title, action, isDangerous = false, onSubmit, onClose, children }: DialogFormProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit();
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {children}
        {error !== undefined && <ProblemNotice error={error} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind={isDangerous ? 'danger' : 'primary'} type="submit" isBusy={isBusy}>
            {action}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
