import { formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Elapsed } from './server-clock.tsx';
import { canCancel, type Session, type SessionSignal } from './session-calls.ts';
import { programOf, STATE_MEANINGS, StateTag } from './session-labels.tsx';

export interface SessionDialogProps {
  readonly session: Session;
  /** It is no longer in the list. */
  readonly hasEnded: boolean;
  readonly keyName: string | undefined;
  readonly onSignal: (kind: SessionSignal) => void;
  readonly onClose: () => void;
}

/** Everything that is known of one session. It follows the list. */
export function SessionDialog({ session, hasEnded, keyName, onSignal, onClose }: SessionDialogProps) {
  const { statement, state, stateSince, pins, connectedAt, isOwn } = session;
  return (
    <Dialog title={programOf(session)} class="wide" onClose={onClose}>
      {hasEnded && (
        <Notice tone="info">
          <p>It has ended. This is how it was seen last.</p>
        </Notice>
      )}
      {isOwn && !hasEnded && (
        <Notice tone="info">
          <p>It is the request by which this page asks for the list.</p>
        </Notice>
      )}
      {statement !== null && <CodeBlock text={statement.sql} label={`Runs since ${formatTime(statement.startedAt)}`} />}
      <dl class="facts">
        <div>
          <dt>State</dt>
          <dd class="session-fact">
            <span>
              <StateTag state={state} /> {hasEnded ? null : <Elapsed since={stateSince} />}
            </span>
            <span class="muted">{STATE_MEANINGS[state]}</span>
          </dd>
        </div>
        {pins.map(({ reason, explanation }) => (
          <div key={reason}>
            <dt>Pin</dt>
            <dd class="session-fact">
              <span class="tag">{reason.replaceAll('_', ' ')}</span>
              <span class="muted">{explanation}</span>
            </dd>
          </div>
        ))}
        {factsOf(session, keyName).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        <div>
          <dt>Since</dt>
          <dd>{formatTime(connectedAt)}</dd>
        </div>
        <div>
          <dt>Session id</dt>
          <dd>
            <code>{session.sessionId}</code>
            <CopyButton text={session.sessionId} label="Copy the session id" isSmall />
          </dd>
        </div>
      </dl>
      {!isOwn && !hasEnded && (
        <footer>
          <Button icon="stop" isDisabled={!canCancel(session)} onClick={() => onSignal('cancel')}>
            Cancel the statement
          </Button>
          <Button kind="danger" onClick={() => onSignal('end')}>
            End the session
          </Button>
        </footer>
      )}
    </Dialog>
  );
}

function factsOf(session: Session, keyName: string | undefined): readonly (readonly [string, string])[] {
  const { door, isEncrypted, sourceIp, keyPrefix, keyId, applicationName, userAgent, processId } = session;
  const facts: readonly (readonly [string, string | null | undefined])[] = [
    ['Door', `${door === 'wire' ? 'wire: a connection' : 'HTTP: a request'}${isEncrypted ? ', with TLS' : ', without TLS'}`],
    ['Address', sourceIp],
    ['Key', [keyName, `${keyPrefix}…`, keyId].filter(Boolean).join(' · ')],
    ['Application', applicationName],
    ['User agent', userAgent],
    ['Process id', processId === null ? null : String(processId)],
  ];
  return facts.flatMap(([term, text]) => (text ? [[term, text] as const] : []));
}
