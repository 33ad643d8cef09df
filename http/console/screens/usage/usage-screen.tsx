import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CopyButton } from '../../parts/copying.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage, Section } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import {
  formatInterval,
  linearScale,
  logarithmicScale,
  type Period,
  readUsage,
  type Scale,
  timelineOf,
  timeTicks,
  type Usage,
  type UsageCounts,
  type UsageInterval,
} from './usage.ts';

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
      <p class="muted usage-note">Connections and requests are those of the process that has answered.</p>
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

/** What the organization has and uses, in numbers. */
function Figures({ usage: { database, sessions, totals, period } }: { readonly usage: Usage }) {
  const { statements, errors, rows, bytesIn, bytesOut } = totals;
  const { limits } = sessions;
  const span = period === '24h' ? 'in 24 hours' : 'in 90 days';
  return (
    <dl class="usage-figures">
      {database.maxBytes === null ? (
        <Figure term="Database" value={formatBytes(database.bytes)} note="half a minute old at most" />
      ) : (
        <Figure
          term="Database"
          value={`${formatBytes(database.bytes)} of ${formatBytes(database.maxBytes)}`}
          note={<Meter value={database.bytes} max={database.maxBytes} />}
        />
      )}
      <Figure term="Statements" value={formatCount(statements)} note={span} />
      <Figure term="Errors" value={formatCount(errors)} note={errorNote(errors, statements)} />
      <Figure term="Rows" value={formatCount(rows)} note="returned or affected" />
      <Figure term="Bytes" value={formatBytes(bytesIn + bytesOut)} note={`${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out`} />
      <Figure
        term="Connections now"
        value={`${formatCount(sessions.wire)} of ${formatCount(limits.wire)}`}
        note={<Meter value={sessions.wire} max={limits.wire} />}
      />
      <Figure
        term="HTTP requests now"
        value={`${formatCount(sessions.http)} of ${formatCount(limits.http)}`}
        note={<Meter value={sessions.http} max={limits.http} />}
      />
      <Figure term="Backends" value={`at most ${formatCount(limits.backends)}`} note="of PostgreSQL, at once" />
      {limits.requestsPerSecond !== null && (
        <Figure term="HTTP requests in a second" value={`at most ${formatCount(limits.requestsPerSecond)}`} note="on average" />
      )}
      {limits.statementMs !== null && (
        <Figure term="Time of a statement" value={`at most ${formatDuration(limits.statementMs)}`} note="at the wire door" />
      )}
    </dl>
  );
}

function errorNote(errors: number, statements: number): string {
  if (errors === 0) return 'no request failed';
  const perThousand = Math.round((errors / Math.max(statements, errors)) * 1_000);
  return perThousand === 0 ? 'fewer than 1 of 1,000 statements' : `${formatCount(perThousand)} of 1,000 statements`;
}

function Figure({ term, value, note }: { readonly term: string; readonly value: string; readonly note: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>
        <span class="usage-value">{value}</span>
        <span class="muted">{note}</span>
      </dd>
    </div>
  );
}

/** From this part on, a limit is near. */
const NEAR = 0.8;

/** The figures stand beside it. */
function Meter({ value, max }: { readonly value: number; readonly max: number }) {
  const part = max === 0 ? 0 : Math.min(value / max, 1);
  return (
    <span class={part >= NEAR ? 'usage-meter near' : 'usage-meter'} aria-hidden="true">
      <span style={{ width: `${part * 100}%` }} />
    </span>
  );
}

/** Everything that was counted, over the time. */
function Charts({ usage }: { readonly usage: Usage }) {
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

/** The figures of the charts, the newest first. */
function UsageTable({ usage: { intervals, period } }: { readonly usage: Usage }) {
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

/** The interval that is pointed at, in all charts. */
const hovered = signal<number | undefined>(undefined);

interface ChartProps extends Omit<PlotProps, 'label' | 'hovered' | 'onHover' | 'formatAxis'> {
  readonly title: string;
  readonly format: (value: number) => string;
  /** As `format`, for round values. */
  readonly formatAxis?: (value: number) => string;
  /** What of a series is said while nothing is pointed at. */
  readonly summary: (values: Series['values']) => string;
}

/** What was counted over the time. The figures of what is pointed at stand above it. */
function Chart({ title, format, formatAxis = format, summary, ...plot }: ChartProps) {
  const { starts, period, series } = plot;
  const at = hovered.value;
  const start = at === undefined ? undefined : starts[at];
  const shown = ({ values }: Series) => {
    const value = at === undefined ? undefined : values[at];
    if (value === undefined) return summary(values);
    return value === null ? 'none' : format(value);
  };
  return (
    <figure class="usage-chart">
      <figcaption>
        <h2>{title}</h2>
        <span class="muted number">{start === undefined ? '' : formatInterval(start, period)}</span>
        <span class="usage-legend number" aria-hidden="true">
          {series.map((one) => (
            <span key={one.name}>
              {series.length > 1 && (
                <>
                  <span class={`usage-color ${one.color}`} /> <span class="muted">{one.name}</span>
                </>
              )}{' '}
              {shown(one)}
            </span>
          ))}
        </span>
      </figcaption>
      <Plot
        {...plot}
        label={describe({ title, format, summary, ...plot })}
        formatAxis={formatAxis}
        hovered={at}
        onHover={(next) => (hovered.value = next)}
      />
    </figure>
  );
}

function describe({ title, starts, period, series, format, summary }: ChartProps): string {
  const parts = series.map(({ name, values }) => {
    const max = Math.max(...values.map((value) => value ?? 0));
    const start = starts[values.indexOf(max)];
    const most = max === 0 || start === undefined ? '' : `; the most, ${format(max)}, ${formatInterval(start, period)}`;
    return `${series.length > 1 ? `${name}: ` : ''}${summary(values)}${most}`;
  });
  return `${title}. ${parts.join('. ')}. All figures stand in the table below.`;
}

interface Series {
  readonly name: string;
  /** One of those in usage.css. */
  readonly color: 'accent' | 'bad' | 'info' | 'warning';
  /** null: there is none. */
  readonly values: readonly (number | null)[];
}

interface PlotProps {
  /** Says the same to those who do not see it. */
  readonly label: string;
  readonly kind: 'bars' | 'lines';
  readonly period: Period;
  /** When each interval begins, in seconds since 1970. */
  readonly starts: readonly number[];
  readonly series: readonly Series[];
  readonly formatAxis: (value: number) => string;
  /** For values of very different size, all greater than 0. */
  readonly isLogarithmic?: boolean;
  /** The interval that is pointed at. */
  readonly hovered: number | undefined;
  readonly onHover: (at: number | undefined) => void;
}

const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 16;
const TOP = 8;
const BOTTOM = 20;

/** Values over the time, in pixels of the width that there is. Colors are those of the style sheet, in whatever theme. */
function Plot({ label, starts, series, formatAxis, hovered, onHover, ...shape }: PlotProps) {
  const { kind, period, isLogarithmic = false } = shape;
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const inner = Math.max(0, width - LEFT - RIGHT);
  const step = inner / starts.length;
  const marks = useMemo(() => {
    const scale = scaleOf(series, isLogarithmic);
    const y = (value: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - scale.partOf(value));
    const draw = kind === 'bars' ? bars : lines;
    return {
      y,
      rules: scale.ticks.map((value) => ({ at: y(value), text: formatAxis(value) })),
      times: timeTicks(starts, period, inner).map(({ at, label: text }) => ({ at: LEFT + at * step, text })),
      paths: series.map(({ name, color, values }) => ({ name, color, path: draw(values, step, y) })),
    };
  }, [starts, width]);
  const point = ({ offsetX }: PointerEvent) => {
    const at = Math.floor((offsetX - LEFT) / step);
    onHover(at >= 0 && at < starts.length ? at : undefined);
  };
  const middle = hovered === undefined ? undefined : LEFT + (hovered + 0.5) * step;
  return (
    <div ref={host} class="usage-plot">
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={label}
        onPointerMove={point}
        onPointerDown={point}
        onPointerLeave={() => onHover(undefined)}
      >
        {marks.rules.map(({ at, text }) => (
          <g key={text}>
            <line class="rule" x1={LEFT} x2={width - RIGHT} y1={at} y2={at} />
            <text x={LEFT - 8} y={at + 4} text-anchor="end">
              {text}
            </text>
          </g>
        ))}
        {marks.times.map(({ at, text }) => (
          <text key={at} x={at} y={HEIGHT - 3} text-anchor="middle">
            {text}
          </text>
        ))}
        {marks.paths.map(({ name, color, path }) => (
          <path key={name} class={`${kind} ${color}`} d={path} />
        ))}
        {middle !== undefined && <line class="cursor" x1={middle} x2={middle} y1={TOP} y2={HEIGHT - BOTTOM} />}
        {middle !== undefined && kind === 'lines' && <Points series={series} at={hovered} x={middle} y={marks.y} />}
      </svg>
    </div>
  );
}

interface PointsProps {
  readonly series: readonly Series[];
  readonly at: number | undefined;
  readonly x: number;
  readonly y: (value: number) => number;
}

function Points({ series, at = -1, x, y }: PointsProps) {
  return (
    <>
      {series.map(({ name, color, values }) => {
        const value = values[at];
        return value === null || value === undefined ? null : <circle key={name} class={color} cx={x} cy={y(value)} r={3.5} />;
      })}
    </>
  );
}

function useWidth(host: { readonly current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return width;
}

function scaleOf(series: readonly Series[], isLogarithmic: boolean): Scale {
  const values = series.flatMap((one) => one.values.filter((value) => value !== null));
  return isLogarithmic ? logarithmicScale(values.filter((value) => value > 0)) : linearScale(Math.max(0, ...values));
}

type Draw = (values: Series['values'], step: number, y: (value: number) => number) => string;

/** Bars touch each other where they are narrow. */
const bars: Draw = (values, step, y) => {
  const bottom = y(0);
  const gap = step > 4 ? 1 : 0;
  return values
    .map((value, at) => (value ? `M${px(LEFT + at * step)} ${px(bottom)}V${px(y(value))}h${px(step - gap)}V${px(bottom)}z` : ''))
    .join('');
};

/** A value without neighbours has no line, and becomes a point. */
const lines: Draw = (values, step, y) => {
  const isThere = (at: number) => typeof values[at] === 'number';
  return values
    .map((value, at) => {
      if (value === null) return '';
      const [x, top] = [LEFT + (at + 0.5) * step, px(y(value))];
      if (isThere(at - 1)) return `L${px(x)} ${top}`;
      return isThere(at + 1) ? `M${px(x)} ${top}` : `M${px(x - 1)} ${top}a1 1 0 1 0 2 0a1 1 0 1 0-2 0`;
    })
    .join('');
};

function px(length: number): string {
  return length.toFixed(1);
}
