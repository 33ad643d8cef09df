import type { ComponentChildren } from 'preact';
import { Button } from '../../parts/button.tsx';
import { Tabs } from '../../parts/layout/tabs.tsx';
import { addTab, change, closeTab, currentTab, editors, type QueryTab, settings, showTab, tabs, titleOf } from './sql-screen-state.ts';

export function QueryTabs({ children }: { readonly children: ComponentChildren }) {
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
