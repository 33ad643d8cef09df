import { useEffect } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { type Period, readUsage, type Usage } from './usage-calls.ts';
import { Charts } from './usage-charts.tsx';
import { Figures } from './usage-figures.tsx';
import { UsageTable } from './usage-table.tsx';

const LEAD = 'What the keys of the organization did at both doors.';

const PERIODS = [
  ['24h', '24 hours'],
  ['90d', '90 days'],
] as const satisfies readonly (readonly [Period, string])[];

/** @param rest the period: `90d`, else 24 hours */
export function UsageScreen({ rest }: { readonly rest: string }) {
  const period: Period = rest === '90d' ? '90d' : '24h';
  const load = useLoad((signal) => readUsage(period, signal), [period]);
  useEffect(() => {
    screenCommands.value = PERIODS.map(([one, title]) => ({
      title: `The last ${title}`,
      group: 'Usage',
      icon: 'chart',
      run: () => goTo('usage', one),
    }));
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
      {PERIODS.map(([one, title]) => (
        <Button key={one} pressed={one === period} onClick={() => goTo('usage', one)}>
          {title}
        </Button>
      ))}
    </>
  );
  return (
    <ScreenPage title="Usage" lead={LEAD} actions={actions}>
      <div class="usage">
        <Loaded of={load}>{(usage) => <Content usage={usage} />}</Loaded>
      </div>
    </ScreenPage>
  );
}

function Content({ usage }: { readonly usage: Usage }) {
  return (
    <>
      <Figures usage={usage} />
      <p class="muted usage-note">Connections, requests and limits are those of the process that has answered.</p>
      {usage.intervals.length === 0 ? (
        <Empty icon="chart" title="Nothing has been counted yet">
          <p>
            {usage.period === '24h'
              ? 'In the last 24 hours no key has run a statement.'
              : 'In the last 90 days no key has run a statement.'}{' '}
            What runs at either door appears here at once.
          </p>
        </Empty>
      ) : (
        <>
          <Charts usage={usage} />
          <UsageTable usage={usage} />
        </>
      )}
    </>
  );
}
