import { useState } from 'preact/hooks';
import { Button } from '../../../parts/button.tsx';
import { Tabs } from '../../../parts/layout/tabs.tsx';
import { change } from '../sql-screen-state.ts';
import { History } from './history-list.tsx';
import { SavedList } from './saved-list.tsx';

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
