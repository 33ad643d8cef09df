import { useEffect, useState } from 'preact/hooks';
import { asApiError, isAbort } from '../../api/client.ts';
import { useLoad } from '../../api/use-load.ts';
import { formatAgo, formatCount, formatDuration, formatTime, hasWords } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Confirmation } from '../../parts/dialog.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { Tabs } from '../../parts/layout.tsx';
import { Loaded, Loading } from '../../parts/loaded.tsx';
import { ProblemNotice } from '../../parts/notice.tsx';
import { isOwner, me } from '../../session/session.ts';
import { say, sayError } from '../../shell/toasts.tsx';
import { type HistoryEntry, type HistoryPage, historyPage, isWhole, pageHistory, pageHistoryEntries } from './history.ts';
import { changes, deleteSaved, listSaved, readSaved, type SavedQuery } from './saved-queries.ts';
import { change, openText, tabs } from './sql-screen-state.ts';

/** Saved queries, and what was run before. */
export function Library() {
  const [shown, show] = useState('saved');
  return (
    <aside class="sql-library" aria-label="Saved queries and history">
      <Tabs
        label="Library"
        tabs={[
          { id: 'saved', title: 'Saved' },
          { id: 'history', title: 'History' },
        ]}
        current={shown}
        onChange={show}
        actions={<Button kind="quiet" icon="close" label="Close the library" onClick={() => change({ isLibraryOpen: false })} />}
      >
        {shown === 'saved' ? <SavedList /> : <History />}
      </Tabs>
    </aside>
  );
}

type Whose = 'browser' | 'all';

/** How often a search goes on by itself where a page has nothing. */
const PAGES_AT_ONCE = 10;
/** The log is written within a quarter of a second. */
const WRITTEN_AFTER_MS = 700;

function History() {
  const isAdmin = me.value?.key.scope === 'admin';
  return isAdmin ? <AuditedHistory /> : <PageHistory />;
}

/** Keys that may not read the audit log see what was run in this page. */
function PageHistory() {
  const [text, setText] = useState('');
  const entries = pageHistoryEntries(pageHistory.value).filter(({ sql }) => hasWords(sql, text));
  return (
    <div class="sql-list">
      <Field label="Find" type="search" value={text} onInput={setText} />
      <p class="muted">What was run in this page. A key with the scope admin finds all of it in the audit log.</p>
      <Entries entries={entries} />
    </div>
  );
}

function AuditedHistory() {
  const [text, setText] = useState('');
  const [whose, setWhose] = useState<Whose>('browser');
  const { pages, isLoading, error, loadOlder, reload } = usePages();
  const newest = pageHistory.value[0];
  useEffect(() => {
    const waiting = setTimeout(reload, newest === undefined ? 0 : WRITTEN_AFTER_MS);
    return () => clearTimeout(waiting);
  }, [newest]);
  const matches = (entry: HistoryEntry) => (whose === 'all' || entry.userAgent === navigator.userAgent) && hasWords(entry.sql, text);
  const entries = distinct(pages.flatMap((page) => page.entries)).filter(matches);
  const hasOlder = pages.at(-1)?.next !== undefined;
  return (
    <form
      class="sql-list"
      onSubmit={(event) => {
        event.preventDefault();
        void loadOlder(matches);
      }}
    >
      <Field label="Find" type="search" value={text} onInput={setText} placeholder="Words of the SQL" />
      <Choice
        label="Whose"
        hideLabel
        value={whose}
        options={[
          ['browser', 'run in this browser'],
          ['all', 'of all keys'],
        ]}
        onChange={setWhose}
      />
      {error !== undefined && <ProblemNotice error={error} onRetry={reload} />}
      <Entries entries={entries} />
      {isLoading && <Loading />}
      {hasOlder && !isLoading && (
        <Button type="submit" icon="clock">
          {text === '' ? 'Older' : 'Search older ones'}
        </Button>
      )}
    </form>
  );
}

function usePages() {
  const [pages, setPages] = useState<readonly HistoryPage[]>([]);
  const [state, setState] = useState<{ readonly isLoading: boolean; readonly error?: unknown }>({ isLoading: true });
  const attempt = async (load: () => Promise<void>) => {
    setState({ isLoading: true });
    try {
      await load();
      setState({ isLoading: false });
    } catch (error) {
      setState(isAbort(error) ? { isLoading: false } : { isLoading: false, error: asApiError(error) });
    }
  };
  const reload = () => void attempt(async () => setPages([await historyPage(undefined)]));
  /** Goes on until there is something to show. */
  const loadOlder = (matches: (entry: HistoryEntry) => boolean) =>
    attempt(async () => {
      let known = pages;
      for (let read = 0; read < PAGES_AT_ONCE; read += 1) {
        const after = known.at(-1)?.next;
        if (after === undefined) return;
        const page = await historyPage(after);
        known = [...known, page];
        setPages(known);
        if (page.entries.some(matches)) return;
      }
    });
  return { pages, ...state, reload, loadOlder };
}

/** A text that was run several times is shown where it was run last. */
function distinct(entries: readonly HistoryEntry[]): readonly HistoryEntry[] {
  const seen = new Set<string>();
  return entries.filter(({ sql }) => !seen.has(sql) && seen.add(sql));
}

function Entries({ entries }: { readonly entries: readonly HistoryEntry[] }) {
  return (
    <ul>
      {entries.map((entry) => (
        <li key={entry.id}>
          <button
            type="button"
            class="sql-entry"
            title={`${formatTime(entry.at)}\n${entry.sql.slice(0, 1_000)}`}
            onClick={() => {
              openText({ text: entry.sql });
              hideLibraryWhereNarrow();
            }}
          >
            <code>{entry.sql.slice(0, 300)}</code>
            <span class="muted number">
              {entry.isError && <span class="bad">failed · </span>}
              {[
                entry.kind,
                formatAgo(entry.at),
                entry.durationMs === null ? undefined : formatDuration(entry.durationMs),
                entry.rowCount === null ? undefined : `${formatCount(entry.rowCount)} ${entry.rowCount === 1 ? 'row' : 'rows'}`,
                isWhole(entry) ? undefined : 'its beginning',
              ]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function SavedList() {
  const [text, setText] = useState('');
  const [toDelete, setToDelete] = useState<SavedQuery>();
  const load = useLoad(listSaved, [changes.value]);
  return (
    <div class="sql-list">
      <Field label="Find" type="search" value={text} onInput={setText} placeholder="Name, description, SQL" />
      <Loaded of={load}>
        {(queries) => {
          const found = queries.filter((query) => hasWords(`${query.name} ${query.description ?? ''} ${query.sql}`, text));
          if (queries.length === 0)
            return (
              <Empty icon="star" title="Nothing is saved">
                <p>“Save” keeps a query for all keys of the organization.</p>
              </Empty>
            );
          if (found.length === 0) return <p class="muted">Nothing has these words.</p>;
          return (
            <ul>
              {found.map((query) => (
                <Entry key={query.name} query={query} onDelete={() => setToDelete(query)} />
              ))}
            </ul>
          );
        }}
      </Loaded>
      {toDelete !== undefined && <Deletion query={toDelete} onClose={() => setToDelete(undefined)} />}
    </div>
  );
}

function Entry({ query, onDelete }: { readonly query: SavedQuery; readonly onDelete: () => void }) {
  const { name, description, sql, updatedAt } = query;
  return (
    <li>
      <button type="button" class="sql-entry" title={sql.slice(0, 1_000)} onClick={() => void openSaved(name)}>
        <strong>{name}</strong>
        <span>{description ?? <code>{sql.slice(0, 120)}</code>}</span>
        <span class="muted">{formatAgo(updatedAt)}</span>
      </button>
      {isOwner() && <Button kind="quiet" icon="trash" label={`Delete ${name}`} onClick={onDelete} />}
    </li>
  );
}

/** As it is now, and with its version: so that a change of somebody else is noticed. */
async function openSaved(name: string): Promise<void> {
  try {
    const saved = await readSaved(name);
    openText({ text: saved.sql, saved });
    hideLibraryWhereNarrow();
  } catch (error) {
    sayError(error, () => void openSaved(name));
  }
}

function Deletion({ query: { name, sql }, onClose }: { readonly query: SavedQuery; readonly onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      await deleteSaved(name);
      // The texts stay, and are no longer saved.
      for (const tab of tabs.peek()) if (tab.saved.peek()?.name === name) tab.saved.value = undefined;
      say(`“${name}” is deleted.`);
      onClose();
    } catch (error) {
      setBusy(false);
      sayError(error);
    }
  };
  return (
    <Confirmation title={`Delete “${name}”?`} action="Delete" isDangerous isBusy={isBusy} onClose={onClose} onConfirm={() => void remove()}>
      <p>It is deleted for all keys of the organization.</p>
      <CodeBlock text={sql} />
    </Confirmation>
  );
}

const NARROW_PX = 820;

/** There the library is over the editor. */
function hideLibraryWhereNarrow(): void {
  if (innerWidth <= NARROW_PX) change({ isLibraryOpen: false });
}
