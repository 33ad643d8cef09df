import { signal } from '@preact/signals';
import { Plot, type PlotProps, type Series } from './plot.tsx';
import { formatInterval } from './timeline.ts';

/** The interval that is pointed at, in all charts. */
const hovered = signal<number | undefined>(undefined);

export interface ChartProps extends Omit<PlotProps, 'label' | 'hovered' | 'onHover' | 'formatAxis'> {
  readonly title: string;
  readonly format: (value: number) => string;
  /** As `format`, for round values. */
  readonly formatAxis?: (value: number) => string;
  /** What of a series is said while nothing is pointed at. */
  readonly summary: (values: Series['values']) => string;
}

/** What was counted over the time. The figures of what is pointed at stand above it. */
export function Chart({ title, format, formatAxis = format, summary, ...plot }: ChartProps) {
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
