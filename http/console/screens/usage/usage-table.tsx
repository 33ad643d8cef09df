import { useState } from 'preact/hooks';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { Section } from '../../parts/layout/section.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import type { Usage, UsageInterval } from './usage-calls.ts';

/** The figures of the charts, the newest first. */
export function UsageTable({ usage: { intervals, period } }: { readonly usage: Usage }) {
  const [isOpen, setOpen] = useState(false);
  const actions = (
    <>
      {isOpen && <CopyButton text={() => csvOf(intervals)} label="Copy as CSV" />}
      <Button icon={isOpen ? 'close' : 'table'} expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? 'Hide the table' : 'Show the table'}
      </Button>
    </>
  );
  return (
    <Section title="All figures" actions={actions}>
      <p class="muted">
        {period === '24h' ? 'By five minutes.' : 'By day, in UTC.'} Those in which nothing happened are left out.
        {period === '24h' ? ' What other processes of Postern did in the current minute is missing.' : ''}
      </p>
      {isOpen && <Table label="All figures" columns={columnsOf(period)} rows={intervals.toReversed()} keyOf={({ startsAt }) => startsAt} />}
    </Section>
  );
}

function columnsOf(period: Usage['period']): readonly Column<UsageInterval>[] {
  const latency = (of: 'p50' | 'p95' | 'p99'): Column<UsageInterval> => ({
    title: of,
    align: 'right',
    cell: ({ latencyMs }) => (latencyMs === null ? <span class="muted">none</span> : formatDuration(latencyMs[of])),
  });
  return [
    { title: 'Begins', cell: ({ startsAt }) => <time>{period === '90d' ? startsAt.slice(0, 10) : formatTime(startsAt)}</time> },
    { title: 'Statements', align: 'right', cell: ({ statements }) => formatCount(statements) },
    { title: 'Errors', align: 'right', cell: ({ errors }) => formatCount(errors) },
    { title: 'Rows', align: 'right', cell: ({ rows }) => formatCount(rows) },
    { title: 'In', align: 'right', cell: ({ bytesIn }) => formatBytes(bytesIn) },
    { title: 'Out', align: 'right', cell: ({ bytesOut }) => formatBytes(bytesOut) },
    latency('p50'),
    latency('p95'),
    latency('p99'),
    { title: 'Sessions', align: 'right', cell: ({ peakSessions }) => formatCount(peakSessions) },
  ];
}

function csvOf(intervals: readonly UsageInterval[]): string {
  const lines = intervals.map(({ startsAt, statements, errors, rows, bytesIn, bytesOut, latencyMs, peakSessions }) =>
    [startsAt, statements, errors, rows, bytesIn, bytesOut, latencyMs?.p50, latencyMs?.p95, latencyMs?.p99, peakSessions].join(','),
  );
  return `${['startsAt,statements,errors,rows,bytesIn,bytesOut,p50Ms,p95Ms,p99Ms,peakSessions', ...lines].join('\n')}\n`;
}
