import { useMemo } from 'preact/hooks';
import { formatBytes, formatCount, formatDuration } from '../../format.ts';
import { Chart } from './chart.tsx';
import { timelineOf } from './timeline.ts';
import type { Usage, UsageCounts } from './usage-calls.ts';

/** Everything that was counted, over the time. */
export function Charts({ usage }: { readonly usage: Usage }) {
  const { period, starts, intervals } = useMemo(() => timelineOf(usage), [usage]);
  const common = { period, starts };
  const counts = (of: keyof UsageCounts | 'peakSessions') => intervals.map((interval) => interval?.[of] ?? 0);
  const latency = (of: 'p50' | 'p95' | 'p99') => intervals.map((interval) => interval?.latencyMs?.[of] ?? null);
  return (
    <div class="usage-charts">
      <Chart
        {...common}
        title="Statements"
        kind="bars"
        series={[{ name: 'Statements', color: 'accent', values: counts('statements') }]}
        format={formatCompact}
        summary={(values) => `${formatCount(sum(values))} in all`}
      />
      <Chart
        {...common}
        title="Errors"
        kind="bars"
        series={[{ name: 'Errors', color: 'bad', values: counts('errors') }]}
        format={formatCompact}
        summary={(values) => `${formatCount(sum(values))} in all`}
      />
      <Chart
        {...common}
        title="Latency of requests"
        kind="lines"
        isLogarithmic
        series={[
          { name: 'p50', color: 'accent', values: latency('p50') },
          { name: 'p95', color: 'info', values: latency('p95') },
          { name: 'p99', color: 'warning', values: latency('p99') },
        ]}
        format={formatDuration}
        formatAxis={formatPower}
        summary={(values) => `at most ${formatDuration(most(values))}`}
      />
      <Chart
        {...common}
        title="Rows"
        kind="bars"
        series={[{ name: 'Rows', color: 'accent', values: counts('rows') }]}
        format={formatCompact}
        summary={(values) => `${formatCount(sum(values))} in all`}
      />
      <Chart
        {...common}
        title="Bytes"
        kind="lines"
        series={[
          { name: 'requests', color: 'info', values: counts('bytesIn') },
          { name: 'replies', color: 'accent', values: counts('bytesOut') },
        ]}
        format={formatBytes}
        formatAxis={formatRoundBytes}
        summary={(values) => `${formatBytes(sum(values))} in all`}
      />
      <Chart
        {...common}
        title="Most sessions at once"
        kind="bars"
        series={[{ name: 'Sessions', color: 'accent', values: counts('peakSessions') }]}
        format={formatCompact}
        summary={(values) => `at most ${formatCount(most(values))}, at the wire door of one process`}
      />
    </div>
  );
}

type Values = readonly (number | null)[];

function sum(values: Values): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

function most(values: Values): number {
  return Math.max(0, ...values.map((value) => value ?? 0));
}

/** `10 ms`, `100 s` */
function formatPower(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${formatCount(ms / 1_000)} s`;
}

/** `10 MB` in place of `10.0 MB` */
function formatRoundBytes(bytes: number): string {
  return bytes === 0 ? '0' : formatBytes(bytes).replace('.0 ', ' ');
}

const COMPACT = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

/** `1.2K`, where there is little space; small numbers as they are. */
function formatCompact(count: number): string {
  return count < 10_000 ? formatCount(count) : COMPACT.format(count);
}
