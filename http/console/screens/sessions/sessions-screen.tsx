import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Loading } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { me } from '../../session/me.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { listKeys } from '../keys/key-calls.ts';
import { findSessions, SHOWN, searched, shown } from './filters.ts';
import { setClock, useTicking } from './server-clock.tsx';
import { listSessions, type Session, type SessionList, type SessionSignal } from './session-calls.ts';
import { SessionDialog } from './session-dialog.tsx';
import { SessionTable } from './session-table.tsx';
import { SignalDialog } from './signal-dialog.tsx';
import { usePolling } from './use-polling.ts';

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

function Incomplete({ list: { isComplete, sessions, processes } }: { readonly list: SessionList }) {
  if (isComplete) return null;
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
