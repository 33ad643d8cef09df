import { useEffect, useRef } from 'preact/hooks';
import { Editor } from '../../editor/editor.tsx';
import type { EditorHandle } from '../../editor/editor-handle.ts';
import { lazy } from '../../shell/lazy.tsx';
import { runAll, runHere } from './run/lazy-actions.ts';
import { currentTab, editors, type QueryTab, selections, tabs } from './sql-screen-state.ts';

const Parameters = lazy(async () => (await import('./parameter-fields.tsx')).Parameters);
const MAY_HAVE_PARAMETERS = /\$\d/;

/** The editor of each tab that was shown: so that each has its own history and cursor. */
export function Editors() {
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
