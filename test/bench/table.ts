import type { Spread } from './statistics.ts';

/** A Markdown table that is one in a terminal too. The first column reads from the left, the others are figures. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) => Math.max(...[head, ...rows].map((row) => (row[column] ?? '').length), title.length, 2));
  const line = (cells: readonly string[]) =>
    `| ${widths.map((width, column) => (column === 0 ? (cells[column] ?? '').padEnd(width) : (cells[column] ?? '').padStart(width))).join(' | ')} |`;
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`));
  return [line(head), line(rule), ...rows.map(line)].join('\n');
}

/** `38,112 (36,020–39,417)`, `0.87 (0.81–0.93)`, and `n/a` for what could not be measured. */
export function spread(found: Spread | undefined): string {
  if (found === undefined) return 'n/a';
  if (found.min === found.max) return figure(found.median);
  return `${figure(found.median)} (${figure(found.min)}–${figure(found.max)})`;
}

/** With as many digits as mean something. */
export function figure(value: number): string {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
