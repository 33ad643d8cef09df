import { CodeBlock } from '../../parts/copying.tsx';
import { Confirmation } from '../../parts/dialog.tsx';
import { Notice } from '../../parts/notice.tsx';
import { me } from '../../session/session.ts';
import { pendingConfirmation } from './run-request.ts';

const SHOWN_MAX_CHARACTERS = 4_000;

/** Shows what destroys data before it runs. */
export function DestructionDialog() {
  const question = pendingConfirmation.value;
  if (question === undefined) return null;
  const { destructions, confirm } = question;
  const close = () => {
    pendingConfirmation.value = undefined;
  };
  return (
    <Confirmation
      title={destructions.length === 1 ? 'Run this statement?' : `Run these ${destructions.length} statements?`}
      action="Run"
      isDangerous
      onClose={close}
      onConfirm={() => {
        close();
        confirm();
      }}
    >
      {destructions.map(({ statement: { text, start }, found }) => (
        <div key={start} class="sql-destruction">
          <CodeBlock text={text.length > SHOWN_MAX_CHARACTERS ? `${text.slice(0, SHOWN_MAX_CHARACTERS)} …` : text} />
          <Notice tone="warning">
            {found.map(({ message }) => (
              <p key={message}>{message}.</p>
            ))}
          </Notice>
        </div>
      ))}
      <p>It runs in the database of {me.value?.orgName}.</p>
    </Confirmation>
  );
}
