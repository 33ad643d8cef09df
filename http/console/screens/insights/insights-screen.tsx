import { useEffect } from 'preact/hooks';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { type Tab, Tabs } from '../../parts/layout/tabs.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { AdviceTab } from './advice-tab.tsx';
import { QueriesTab } from './queries-tab.tsx';

const TABS: readonly Tab[] = [
  { id: 'queries', title: 'Queries' },
  { id: 'advice', title: 'Advice' },
];

/** @param rest which tab: `advice`, else the queries */
export function InsightsScreen({ rest }: { readonly rest: string }) {
  const current = rest === 'advice' ? 'advice' : 'queries';
  useEffect(() => {
    screenCommands.value = [
      { title: 'Queries that take the most time', group: 'Insights', icon: 'clock', run: () => goTo('insights', 'queries') },
      { title: 'Advice', group: 'Insights', icon: 'bulb', run: () => goTo('insights', 'advice') },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  return (
    <ScreenPage title="Insights" lead="Which statements take the most time, and what could be better in the schema.">
      <div class="insights">
        <Tabs label="Insights" tabs={TABS} current={current} onChange={(id) => goTo('insights', id)}>
          {current === 'advice' ? <AdviceTab /> : <QueriesTab />}
        </Tabs>
      </div>
    </ScreenPage>
  );
}
