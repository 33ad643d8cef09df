import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Editor } from '../../editor/editor.tsx';
import type { EditorHandle } from '../../editor/editor-handle.ts';
import { formatBytes } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Checkbox, Choice } from '../../parts/fields.tsx';
import { ScreenPage, Tabs } from '../../parts/layout.tsx';
import { MenuButton } from '../../parts/menu.tsx';
import { isOwner, me, statementTimeoutChoices } from '../../session/session.ts';
import { lazy } from '../../shell/lazy.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { sayError } from '../../shell/toasts.tsx';
import { cancel, explainHere, loadActions, runAll, runHere } from './lazy-actions.ts';
import { pendingConfirmation } from './run-request.ts';
import {
  addTab,
  change,
  closeTab,
  currentDownload,
  currentTab,
  editors,
  type QueryTab,
  saveQuestion,
  selections,
  settings,
  showTab,
  tabs,
  titleOf,
} from './sql-screen-state.ts';

const Library = lazy(async () => (await import('./library.tsx')).Library);
const Results = lazy(async () => (await import('./results.tsx')).Results);
const SaveDialog = lazy(async () => (await import('./save-dialog.tsx')).SaveDialog);
const DestructionDialog = lazy(async () => (await import('./destruction-dialog.tsx')).DestructionDialog);

/** Statements are written, run and kept. */
export function SqlScreen() {
  useEffect(() => {
    loadActions();
    screenCommands.value = [
      { title: 'Run the statement at the cursor', group: 'SQL', icon: 'play', keys: 'Ctrl Enter', run: runHere },
      { title: 'Run all in one transaction', group: 'SQL', icon: 'play', keys: 'Ctrl Shift Enter', run: runAll },
      { title: 'Explain', group: 'SQL', icon: 'chart', run: () => explainHere('explain') },
      { title: 'Explain and analyze', group: 'SQL', icon: 'chart', run: () => explainHere('analyze') },
      { title: 'Cancel what runs', group: 'SQL', icon: 'stop', run: cancel },
      { title: 'New tab', group: 'SQL', icon: 'plus', run: () => void addTab() },
      { title: 'Close this tab', group: 'SQL', icon: 'close', run: () => closeTab(currentTab.peek()) },
      { title: 'Saved queries and history', group: 'SQL', icon: 'clock', run: () => change({ isLibraryOpen: true }) },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const { isLibraryOpen, editorShare } = settings.value;
  return (
    <ScreenPage title="SQL" isFull hideTitle>
      <div class={isLibraryOpen ? 'sql with-library' : 'sql'}>
        <QueryTabs>
          <Toolbar />
          <div class="sql-panes" style={{ '--editor-share': `${editorShare}fr`, '--results-share': `${100 - editorShare}fr` }}>
            <Editors />
            <PaneSplitter />
            <div class="sql-results" aria-live="off">
              <Results key={currentTab.value.id} tab={currentTab.value} />
            </div>
          </div>
        </QueryTabs>
        {isLibraryOpen && <Library />}
      </div>
      {pendingConfirmation.value !== undefined && <DestructionDialog />}
      {saveQuestion.value !== undefined && <SaveDialog />}
    </ScreenPage>
  );
}

const TIME_LIMITS_MS = [5_000, 30_000, 60_000, 300_000];

function Toolbar() {
  const { isReadOnly, timeLimit } = settings.value;
  const isReader = me.value?.key.scope === 'read';
  const isRunning = currentTab.value.run.value?.phase === 'running';
  return (
    <div class="sql-toolbar" role="toolbar" aria-label="Run">
      <div class="sql-run">
        {isRunning ? (
          <Button icon="stop" onClick={cancel}>
            Cancel
          </Button>
        ) : (
          <Button kind="primary" icon="play" title="Run what is selected, else the statement at the cursor (Ctrl Enter)" onClick={runHere}>
            Run
          </Button>
        )}
        <MenuButton
          label="More ways to run"
          kind={isRunning ? 'plain' : 'primary'}
          entries={[
            { title: 'Run what is selected, else the statement at the cursor', keys: 'Ctrl Enter', run: runHere },
            { title: 'Run all in one transaction', keys: 'Ctrl Shift Enter', run: runAll },
            { title: 'Run into a CSV file …', isFirst: true, run: () => void downloadHere('csv') },
            { title: 'Run into a JSON file …', run: () => void downloadHere('json') },
          ]}
        />
      </div>
      <Button title="Show how PostgreSQL would run it" isDisabled={isRunning} onClick={() => explainHere('explain')}>
        Explain
      </Button>
      <Button title="Run it, roll it back, and show where the time went" isDisabled={isRunning} onClick={() => explainHere('analyze')}>
        Analyze
      </Button>
      <DownloadButton />
      <div class="sql-options">
        {isReader ? (
          <span class="tag" title="The scope of the key is read">
            read-only key
          </span>
        ) : (
          <Checkbox label="Read only" isChecked={isReadOnly} onChange={(next) => change({ isReadOnly: next })} />
        )}
        <Choice
          label="Time limit"
          hideLabel
          value={timeLimit}
          options={statementTimeoutChoices(TIME_LIMITS_MS)}
          onChange={(next) => change({ timeLimit: next })}
        />
        <SaveButton />
      </div>
    </div>
  );
}

/** How far a download is. */
function DownloadButton() {
  const now = currentDownload.value;
  if (now === undefined) return null;
  return (
    <Button icon="stop" class="number" title="Cancel the download" onClick={now.cancel}>
      {formatBytes(now.bytes)} saved …
    </Button>
  );
}

function SaveButton() {
  const { saved, text } = currentTab.value;
  const isSaved = saved.value !== undefined && saved.value.sql === text.value;
  if (!isOwner()) return null;
  return (
    <>
      <Button
        icon="star"
        title={saved.value === undefined ? 'Save it for all keys of the organization' : `Save “${saved.value.name}”`}
        isDisabled={isSaved || text.value.trim() === ''}
        onClick={() => void save(false)}
      >
        Save
      </Button>
      {saved.value !== undefined && (
        <Button kind="quiet" onClick={() => void save(true)}>
          Save as …
        </Button>
      )}
    </>
  );
}

async function save(asAnother: boolean): Promise<void> {
  try {
    const { beginSaving } = await import('./saved-queries.ts');
    await beginSaving(currentTab.peek(), asAnother);
  } catch (error) {
    sayError(error, () => void save(asAnother));
  }
}

async function downloadHere(form: 'csv' | 'json'): Promise<void> {
  try {
    const { downloadStatementHere } = await import('./download.ts');
    await downloadStatementHere(form);
  } catch (error) {
    sayError(error, () => void downloadHere(form));
  }
}

function QueryTabs({ children }: { readonly children: ComponentChildren }) {
  const { isLibraryOpen } = settings.value;
  const actions = (
    <>
      <Button
        kind="quiet"
        icon="plus"
        label="New tab"
        onClick={() => {
          const { id } = addTab();
          // The editor appears first.
          setTimeout(() => editors.get(id)?.focus());
        }}
      />
      <Button
        kind="quiet"
        icon="book"
        label="Saved queries and history"
        pressed={isLibraryOpen}
        onClick={() => change({ isLibraryOpen: !isLibraryOpen })}
      />
    </>
  );
  return (
    <Tabs
      label="Queries"
      class="sql-tabs"
      tabs={tabs.value.map((tab) => ({ id: tab.id, title: <Title of={tab} /> }))}
      current={currentTab.value.id}
      onChange={showTab}
      onClose={(id) => {
        const tab = tabs.peek().find((one) => one.id === id);
        if (tab !== undefined) closeTab(tab);
      }}
      actions={actions}
    >
      {children}
    </Tabs>
  );
}

function Title({ of: tab }: { readonly of: QueryTab }) {
  const saved = tab.saved.value;
  const isChanged = saved !== undefined && saved.sql !== tab.text.value;
  return (
    <>
      {tab.run.value?.phase === 'running' && <span class="sql-running" role="img" aria-label="running" />}
      <span class="sql-tab-title" title={titleOf(tab)}>
        {titleOf(tab)}
      </span>
      {isChanged && (
        <span class="muted" title="Not saved">
          {' '}
          •
        </span>
      )}
    </>
  );
}

const Parameters = lazy(async () => (await import('./parameter-fields.tsx')).Parameters);
const MAY_HAVE_PARAMETERS = /\$\d/;

/** The editor of each tab that was shown: so that each has its own history and cursor. */
function Editors() {
  const seen = useRef(new Set<string>());
  const current = currentTab.value;
  seen.current.add(current.id);
  return (
    <div class="sql-editors">
      {tabs.value
        .filter(({ id }) => seen.current.has(id))
        .map((tab) => (
          <div key={tab.id} class="sql-editor" hidden={tab !== current}>
            <TabEditor tab={tab} />
          </div>
        ))}
      {MAY_HAVE_PARAMETERS.test(current.text.value) && <Parameters tab={current} />}
    </div>
  );
}

function TabEditor({ tab }: { readonly tab: QueryTab }) {
  const run = tab.run.value;
  useEffect(
    () => () => {
      const selection = editors.get(tab.id)?.selection();
      if (selection !== undefined) selections.set(tab.id, selection);
    },
    [tab],
  );
  // A place is right only in the text that was sent.
  const place = run?.place !== undefined && run.request.text === tab.text.peek() ? run.place : undefined;
  return (
    <Editor
      label="SQL"
      text={tab.text}
      error={place}
      onRun={runHere}
      onRunAll={runAll}
      onReady={(handle) => takeUp(tab, handle)}
      placeholder={'select * from orders;'}
    />
  );
}

/** The cursor is where it was before another screen was shown. */
function takeUp({ id, text }: QueryTab, handle: EditorHandle): void {
  editors.set(id, handle);
  const before = selections.get(id);
  const { from, to } = handle.selection();
  if (before !== undefined && from === 0 && to === 0 && before.to <= text.peek().length) handle.select(before.from, before.to);
}

const SHARE_MIN = 12;
const SHARE_MAX = 85;
const STEP = 4;

/** Between the editor and the results. @see https://www.w3.org/WAI/ARIA/apg/patterns/windowsplitter/ */
function PaneSplitter() {
  const bar = useRef<HTMLHRElement>(null);
  const { editorShare } = settings.value;
  const move = (share: number) => change({ editorShare: Math.round(Math.min(SHARE_MAX, Math.max(SHARE_MIN, share))) });
  const onKeyDown = (event: KeyboardEvent) => {
    const next = { ArrowUp: editorShare - STEP, ArrowDown: editorShare + STEP, Home: SHARE_MIN, End: SHARE_MAX }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    move(next);
  };
  const onPointerMove = (event: PointerEvent) => {
    const panes = bar.current?.parentElement?.getBoundingClientRect();
    if (panes === undefined || !bar.current?.hasPointerCapture(event.pointerId)) return;
    move(((event.clientY - panes.top) / panes.height) * 100);
  };
  return (
    <hr
      ref={bar}
      class="sql-splitter"
      tabIndex={0}
      aria-label="Height of the editor"
      aria-orientation="horizontal"
      aria-valuenow={editorShare}
      aria-valuemin={SHARE_MIN}
      aria-valuemax={SHARE_MAX}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.preventDefault();
        bar.current?.setPointerCapture(event.pointerId);
      }}
      onPointerMove={onPointerMove}
      onDblClick={() => move(40)}
    />
  );
}
