import { useState } from 'preact/hooks';
import { ApiError } from '../../api/api-error.ts';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { Confirmation } from '../../parts/dialog.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { say } from '../../shell/toasts.tsx';
import { canCancel, type Session, type SessionSignal, signalSession } from './session-calls.ts';
import { programOf } from './session-labels.tsx';

export interface SignalDialogProps {
  readonly kind: SessionSignal;
  readonly session: Session;
  /** It is no longer in the list. */
  readonly hasEnded: boolean;
  /** It was asked to, or has ended by itself. */
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Asks before a session is canceled or ended, and shows what it runs until then. */
export function SignalDialog({ kind, session, hasEnded, onDone, onClose }: SignalDialogProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const isCancel = kind === 'cancel';
  const name = programOf(session);
  const send = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await signalSession(session, kind);
      say(isCancel ? `What ${name} runs is being canceled.` : `The session of ${name} has ended.`);
      onDone();
    } catch (thrown) {
      if (thrown instanceof ApiError && thrown.problem.code === 'not_found') {
        say(`The session of ${name} had ended already.`);
        onDone();
      } else {
        setError(thrown);
        setBusy(false);
      }
    }
  };
  return (
    <Confirmation
      title={isCancel ? `Cancel what ${name} runs?` : `End the session of ${name}?`}
      action={isCancel ? 'Cancel the statement' : 'End the session'}
      dismissal={isCancel ? 'Let it run' : 'Cancel'}
      isDangerous
      isBusy={isBusy}
      onConfirm={() => void (hasEnded ? onDone() : send())}
      onClose={onClose}
    >
      {hasEnded ? <HasEnded /> : <Consequence kind={kind} session={session} />}
      {session.statement !== null && !hasEnded && <CodeBlock text={session.statement.sql} label="It runs" />}
      {error !== undefined && <ProblemNotice error={error} />}
    </Confirmation>
  );
}

function HasEnded() {
  return (
    <Notice tone="info">
      <p>It has ended meanwhile.</p>
    </Notice>
  );
}

function Consequence({ kind, session }: Pick<SignalDialogProps, 'kind' | 'session'>) {
  const { door, sourceIp, state } = session;
  if (kind === 'end') {
    return (
      <p>
        {door === 'wire'
          ? `The connection from ${sourceIp} is closed, and what is not committed is rolled back. The client gets 57P01 and may connect again.`
          : `The request from ${sourceIp} fails with 503, and what is not committed is rolled back.`}
      </p>
    );
  }
  if (!canCancel(session)) return <p>It runs nothing at the moment ({state}), so there is nothing to cancel.</p>;
  return (
    <p>
      {door === 'wire'
        ? `The statement fails with 57014, and a transaction that it belongs to with it. The connection from ${sourceIp} stays.`
        : `The request from ${sourceIp} fails with 400 statement_canceled.`}
    </p>
  );
}
