import { useEffect } from 'preact/hooks';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { lazy } from '../../shell/lazy.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { Editors } from './editors.tsx';
import { saveQuestion } from './library/save-question.ts';
import { PaneSplitter } from './pane-splitter.tsx';
import { QueryTabs } from './query-tabs.tsx';
import { cancel, explainHere, loadActions, runAll, runHere } from './run/lazy-actions.ts';
import { pendingConfirmation } from './run/pending-confirmation.ts';
import { addTab, change, closeTab, currentTab, settings } from './sql-screen-state.ts';
import { Toolbar } from './toolbar.tsx';

const Library = lazy(async () => (await import('./library/library.tsx')).Library);
const Results = lazy(async () => (await import('./results/results.tsx')).Results);
const SaveDialog = lazy(async () => (await import('./library/save-dialog.tsx')).SaveDialog);
const DestructionDialog = lazy(async () => (await import('./results/destruction-dialog.tsx')).DestructionDialog);

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
