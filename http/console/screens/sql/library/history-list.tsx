import { useEffect, useState } from 'preact/hooks';
import { asApiError, isAbort } from '../../../api/api-error.ts';
import { formatAgo, formatCount, formatDuration, formatTime } from '../../../format.ts';
import { hasWords } from '../../../has-words.ts';
import { Button } from '../../../parts/button.tsx';
import { Choice, Field } from '../../../parts/fields.tsx';
import { Loading } from '../../../parts/loaded.tsx';
import { ProblemNotice } from '../../../parts/notice.tsx';
import { me } from '../../../session/me.ts';
import { openText } from '../sql-screen-state.ts';
import { hideLibraryWhereNarrow } from './hide-library-where-narrow.ts';
import { type HistoryEntry, type HistoryPage, historyPage, isWhole, pageHistoryEntries } from './history-entries.ts';
import { pageHistory } from './history-of-this-page.ts';

type Whose = 'browser' | 'all';

/** How often a search goes on by itself where a page has nothing. */
const PAGES_AT_ONCE = 10;
/** The log is written within a quarter of a second. */
const WRITTEN_AFTER_MS = 700;

export function History() {
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
