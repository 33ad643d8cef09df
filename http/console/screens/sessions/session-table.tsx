import { Button } from '../../parts/button.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { me } from '../../session/me.ts';
import { Elapsed } from './server-clock.tsx';
import { canCancel, type Session, type SessionSignal } from './session-calls.ts';
import { programOf, StateTag } from './session-labels.tsx';

export interface SessionTableProps {
  readonly sessions: readonly Session[];
  readonly keyNames: ReadonlyMap<string, string>;
  readonly current: Session | undefined;
  readonly onOpen: (session: Session) => void;
  readonly onSignal: (kind: SessionSignal, session: Session) => void;
}

export function SessionTable({ sessions, keyNames, current, onOpen, onSignal }: SessionTableProps) {
  const columns: readonly Column<Session>[] = [
    { title: 'Client', cell: (session) => <Client of={session} /> },
    { title: 'Key', cell: (session) => <KeyOf session={session} keyNames={keyNames} /> },
    { title: 'Since', cell: ({ connectedAt }) => <Time since={connectedAt} /> },
    { title: 'State', cell: (session) => <State of={session} /> },
    { title: 'Runs', isWide: true, cell: (session) => <Statement of={session} /> },
    { title: 'Actions', align: 'right', cell: (session) => <Actions of={session} onSignal={onSignal} /> },
  ];
  return (
    <Table
      label="Sessions"
      columns={columns}
      rows={sessions}
      keyOf={({ sessionId }) => sessionId}
      onOpen={onOpen}
      current={current?.sessionId}
    />
  );
}

function Client({ of: session }: { readonly of: Session }) {
  const { door, sourceIp, isOwn, isEncrypted } = session;
  return (
    <span class="session-two">
      <span>
        <strong>{programOf(session)}</strong> <span class="tag">{door}</span> {isOwn && <span class="tag good">this request</span>}
      </span>
      <span class="muted">
        {sourceIp}
        {isEncrypted && ' · TLS'}
      </span>
    </span>
  );
}

function KeyOf({ session: { keyId, keyPrefix }, keyNames }: { readonly session: Session; readonly keyNames: ReadonlyMap<string, string> }) {
  const isOfThisPage = me.value?.key.keyId === keyId;
  const name = keyNames.get(keyId) ?? (isOfThisPage ? me.value?.key.name : undefined);
  return (
    <span class="session-two" title={keyId}>
      <span>{name ?? <code>{keyPrefix}…</code>}</span>
      <span class="muted">
        {name !== undefined && <code>{keyPrefix}…</code>}
        {isOfThisPage && ' this page’s'}
      </span>
    </span>
  );
}

/** Of a width that lasts, so that the columns stay where they are. */
function Time({ since }: { readonly since: string }) {
  return (
    <span class="session-time">
      <Elapsed since={since} />
    </span>
  );
}

function State({ of: { state, stateSince, pins } }: { readonly of: Session }) {
  return (
    <span class="session-two">
      <span>
        <StateTag state={state} /> <Time since={stateSince} />
      </span>
      {pins.length > 0 && (
        <span class="muted">
          pinned:{' '}
          {pins.map(({ reason, explanation }, at) => (
            <span key={reason} title={explanation}>
              {at > 0 && ', '}
              {reason.replaceAll('_', ' ')}
            </span>
          ))}
        </span>
      )}
    </span>
  );
}

/** What of a statement is shown in a row. */
const SQL_MAX_CHARACTERS = 300;

function Statement({ of: { statement, state, door } }: { readonly of: Session }) {
  if (statement === null) return state === 'active' ? <span class="muted">{door === 'http' ? 'no statement' : 'not known'}</span> : null;
  return (
    <span class="session-two">
      <code class="session-sql">{statement.sql.slice(0, SQL_MAX_CHARACTERS).replace(/\s+/g, ' ')}</code>
      <span class="muted">
        for <Elapsed since={statement.startedAt} />
      </span>
    </span>
  );
}

function Actions({ of: session, onSignal }: { readonly of: Session; readonly onSignal: SessionTableProps['onSignal'] }) {
  if (session.isOwn) return null;
  const name = `${programOf(session)}, ${session.processId ?? session.sourceIp}`;
  const act = (kind: SessionSignal) => (event: MouseEvent) => {
    // The row opens when it is clicked.
    event.stopPropagation();
    onSignal(kind, session);
  };
  return (
    <span class="row-actions">
      {canCancel(session) && <Button kind="quiet" icon="stop" label={`Cancel what ${name} runs`} onClick={act('cancel')} />}
      <Button kind="quiet" icon="close" label={`End the session of ${name}`} onClick={act('end')} />
    </span>
  );
}
