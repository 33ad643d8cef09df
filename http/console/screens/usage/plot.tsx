import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { linearScale, logarithmicScale, type Scale, timeTicks } from './scales.ts';
import type { Period } from './usage-calls.ts';

export interface Series {
  readonly name: string;
  /** One of those in usage.css. */
  readonly color: 'accent' | 'bad' | 'info' | 'warning';
  /** null: there is none. */
  readonly values: readonly (number | null)[];
}

export interface PlotProps {
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
export function Plot({ label, starts, series, formatAxis, hovered, onHover, ...shape }: PlotProps) {
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
