import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../../api/client.ts';
import { useLoad } from '../../api/use-load.ts';
import { formatCount, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock, CopyButton } from '../../parts/copying.tsx';
import { Confirmation, Dialog } from '../../parts/dialog.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage } from '../../parts/layout.tsx';
import { Loading } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { me } from '../../session/session.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { say } from '../../shell/toasts.tsx';
import { listKeys } from '../keys/keys.ts';
import {
  canCancel,
  describeLock,
  Elapsed,
  findSessions,
  listSessions,
  programOf,
  rootsOf,
  type Session,
  type SessionList,
  type SessionSignal,
  SHOWN,
  STATE_MEANINGS,
  StateTag,
  searched,
  setClock,
  shown,
  signalSession,
  usePolling,
  useTicking,
} from './sessions.tsx';

const isPaused = signal(false);

const LEAD = 'Connections to the wire door, and requests over HTTP that are being served';

export function SessionsScreen() {
  const { data, error, reload } = usePolling(load, isPaused.value);
  useTicking(!isPaused.value);
  useEffect(() => {
    screenCommands.value = [
      { title: isPaused.value ? 'Go on' : 'Pause', group: 'Sessions', icon: isPaused.value ? 'play' : 'pause', run: togglePause },
      { title: 'Load again', group: 'Sessions', icon: 'reload', run: reload },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, [isPaused.value]);
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" onClick={reload} />
      <Button icon={isPaused.value ? 'play' : 'pause'} pressed={isPaused.value} onClick={togglePause}>
        {isPaused.value ? 'Paused' : 'Pause'}
      </Button>
    </>
  );
  return (
    <ScreenPage title="Sessions" lead={`${LEAD}${whoseSessions()}`} actions={actions}>
      <div class="sessions">
        {error !== undefined && <ProblemNotice error={error} onRetry={reload} />}
        {data !== undefined ? <List list={data} onSignaled={reload} /> : error === undefined && <Loading />}
      </div>
    </ScreenPage>
  );
}

async function load(signal: AbortSignal): Promise<SessionList> {
  const list = await listSessions(signal);
  setClock(list);
  return list;
}

function togglePause(): void {
  isPaused.value = !isPaused.value;
}

function whoseSessions(): string {
  return me.value?.key.scope === 'admin' ? ', of all keys.' : ', of this key. Only an admin key sees those of other keys.';
}

/** What is open over the list: a session as it was seen last, and what is to happen to it. */
interface Open {
  readonly session: Session;
  readonly signal?: SessionSignal;
}

function List({ list, onSignaled }: { readonly list: SessionList; readonly onSignaled: () => void }) {
  const keyNames = useKeyNames();
  const [open, setOpen] = useState<Open>();
  const seen = useRef<Session | undefined>(undefined);
  const now = list.sessions.find(({ sessionId }) => sessionId === open?.session.sessionId);
  seen.current = now ?? (seen.current?.sessionId === open?.session.sessionId ? seen.current : open?.session);
  const session = seen.current;
  const found = findSessions(list.sessions, keyNames);
  const close = () => setOpen(undefined);
  return (
    <>
      <Incomplete list={list} />
      {rootsOf(list.sessions).map(({ session: root, blocked }) => (
        <Blocking key={root.sessionId} root={root} blocked={blocked} onSignal={(signal) => setOpen({ session: root, signal })} />
      ))}
      <div class="session-filters">
        <Choice label="Show" value={shown.value} options={SHOWN} onChange={(next) => (shown.value = next)} />
        <Field
          label="Find"
          type="search"
          value={searched.value}
          onInput={(text) => (searched.value = text)}
          placeholder="SQL, program, address, key"
        />
        <p class="muted number" role="status">
          {countsOf(list.sessions, found.length)}
        </p>
      </div>
      {found.length === 0 ? (
        <Empty icon="session" title="No such session">
          <p>Nothing that is connected at the moment matches.</p>
        </Empty>
      ) : (
        <SessionTable
          sessions={found}
          keyNames={keyNames}
          current={open?.session}
          onOpen={(opened) => setOpen({ session: opened })}
          onSignal={(signal, opened) => setOpen({ session: opened, signal })}
        />
      )}
      {open !== undefined && open.signal === undefined && session !== undefined && (
        <SessionDialog
          session={session}
          hasEnded={now === undefined}
          sessions={list.sessions}
          keyName={keyNames.get(session.keyId)}
          onSignal={(signal) => setOpen({ session, signal })}
          onClose={close}
        />
      )}
      {open?.signal !== undefined && session !== undefined && (
        <SignalDialog
          kind={open.signal}
          session={session}
          hasEnded={now === undefined}
          onDone={() => {
            close();
            onSignaled();
          }}
          onClose={close}
        />
      )}
    </>
  );
}

/** Names say more than prefixes; only an admin key may know them. */
function useKeyNames(): ReadonlyMap<string, string> {
  const { data = [] } = useLoad(async (signal) => (me.value?.key.scope === 'admin' ? listKeys(signal) : []));
  return new Map(data.map(({ keyId, name }) => [keyId, name]));
}

function countsOf(sessions: readonly Session[], found: number): string {
  const wire = sessions.filter(({ door }) => door === 'wire').length;
  const http = sessions.length - wire;
  const all = `${formatCount(wire)} ${wire === 1 ? 'connection' : 'connections'}, ${formatCount(http)} ${http === 1 ? 'request' : 'requests'}`;
  return found === sessions.length ? all : `${formatCount(found)} of ${all}`;
}

interface BlockingProps {
  readonly root: Session;
  readonly blocked: readonly Session[];
  readonly onSignal: (kind: SessionSignal) => void;
}

/** A session that others wait for, and what can be done about it. */
function Blocking({ root, blocked, onSignal }: BlockingProps) {
  const name = `${programOf(root)}, ${root.processId ?? root.sourceIp}`;
  return (
    <Notice tone="warning">
      <p class="notice-title">
        {name} holds up {blocked.length === 1 ? 'another session' : `${formatCount(blocked.length)} other sessions`}.
      </p>
      <p>
        <StateTag state={root.state} /> <Elapsed since={root.stateSince} />
        {root.statement !== null && <code class="session-sql"> {root.statement.sql.slice(0, SQL_MAX_CHARACTERS)}</code>}
      </p>
      <ol class="session-chain">
        {blocked.map((session) => (
          <li key={session.sessionId}>
            {programOf(session)}, {session.processId ?? session.sourceIp} <LockOf session={session} />
          </li>
        ))}
      </ol>
      {!root.isOwn && (
        <div class="actions">
          <Button icon="stop" isDisabled={!canCancel(root)} onClick={() => onSignal('cancel')}>
            Cancel its statement
          </Button>
          <Button kind="danger" onClick={() => onSignal('end')}>
            End its session
          </Button>
        </div>
      )}
    </Notice>
  );
}

/** What a session waits for, and since when. */
function LockOf({ session: { waitsFor } }: { readonly session: Session }) {
  if (waitsFor === null) return null;
  return (
    <span class="muted">
      waits for {describeLock(waitsFor)} {waitsFor.since !== null && <Elapsed since={waitsFor.since} />}
    </span>
  );
}

function Incomplete({ list: { isComplete, areWaitsKnown, sessions, processes } }: { readonly list: SessionList }) {
  if (isComplete && areWaitsKnown) return null;
  if (isComplete)
    return (
      <Notice tone="warning">
        <p>The database server has not said within a second which sessions wait for locks.</p>
      </Notice>
    );
  const { asked, answered } = processes;
  return (
    <Notice tone="warning">
      <p class="notice-title">The list is not complete.</p>
      <p>
        {answered < asked
          ? `${answered} of ${asked} processes of Postern have answered within a second. The sessions of the others are missing.`
          : `There are more sessions than are listed: these are the ${formatCount(sessions.length)} oldest.`}
      </p>
    </Notice>
  );
}

interface SessionTableProps {
  readonly sessions: readonly Session[];
  readonly keyNames: ReadonlyMap<string, string>;
  readonly current: Session | undefined;
  readonly onOpen: (session: Session) => void;
  readonly onSignal: (kind: SessionSignal, session: Session) => void;
}

function SessionTable({ sessions, keyNames, current, onOpen, onSignal }: SessionTableProps) {
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

function Statement({ of: session }: { readonly of: Session }) {
  const { statement, state, door } = session;
  if (statement === null) return state === 'active' ? <span class="muted">{door === 'http' ? 'no statement' : 'not known'}</span> : null;
  return (
    <span class="session-two">
      <code class="session-sql">{statement.sql.slice(0, SQL_MAX_CHARACTERS).replace(/\s+/g, ' ')}</code>
      <span class="muted">
        for <Elapsed since={statement.startedAt} />
      </span>
      <LockOf session={session} />
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

interface SessionDialogProps {
  readonly session: Session;
  /** It is no longer in the list. */
  readonly hasEnded: boolean;
  readonly sessions: readonly Session[];
  readonly keyName: string | undefined;
  readonly onSignal: (kind: SessionSignal) => void;
  readonly onClose: () => void;
}

/** Everything that is known of one session. It follows the list. */
function SessionDialog({ session, hasEnded, sessions, keyName, onSignal, onClose }: SessionDialogProps) {
  const { statement, state, stateSince, pins, connectedAt, isOwn, waitsFor, blockedBy } = session;
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
        {waitsFor !== null && !hasEnded && (
          <div>
            <dt>Waits for</dt>
            <dd class="session-fact">
              <span>
                {describeLock(waitsFor)} {waitsFor.since !== null && <Elapsed since={waitsFor.since} />}
              </span>
              {blockedBy.length > 0 && <span>held up by {blockedBy.map((id) => nameOf(id, sessions)).join(', then ')}</span>}
              {waitsFor.isHeldElsewhere && (
                <span class="muted">Something has it that is no session of the organization, such as autovacuum.</span>
              )}
            </dd>
          </div>
        )}
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

/** Sessions of other keys are not listed for most keys. */
function nameOf(id: string, sessions: readonly Session[]): string {
  const found = sessions.find(({ sessionId }) => sessionId === id);
  return found === undefined ? `${id} of another key` : `${programOf(found)} (${found.processId ?? found.sourceIp})`;
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

interface SignalDialogProps {
  readonly kind: SessionSignal;
  readonly session: Session;
  /** It is no longer in the list. */
  readonly hasEnded: boolean;
  /** It was asked to, or has ended by itself. */
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Asks before a session is canceled or ended, and shows what it runs until then. */
function SignalDialog({ kind, session, hasEnded, onDone, onClose }: SignalDialogProps) {
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
