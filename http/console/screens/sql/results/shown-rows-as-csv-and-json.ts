import type { GridSource } from '../../../parts/grid/grid-source.ts';
import { textOf } from '../../../parts/grid/value-text.ts';

const ROWS_AT_ONCE = 2_000;

/** As `COPY … CSV HEADER` writes it: NULL is nothing, an empty text is `""`. */
export function csvOf(source: GridSource): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const { columns } = source;
  const row = (at: number) => `${columns.map(({ type }, column) => csvValue(postgresText(source.valueAt(at, column), type))).join(',')}\n`;
  return parts(source, `${columns.map(({ name }) => csvValue(name)).join(',')}\n`, row, '');
}

/** An array of objects, with the values as they were sent. */
export function jsonOf(source: GridSource): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const names = uniqueNames(source.columns.map(({ name }) => name)).map((name) => JSON.stringify(name));
  const row = (at: number) => `${at === 0 ? '' : ',\n'}{${names.map((name, column) => `${name}:${source.valueAt(at, column)}`).join(',')}}`;
  return parts(source, '[\n', row, '\n]\n');
}

/** The page stays usable in between. */
async function* parts(
  source: GridSource,
  head: string,
  row: (at: number) => string,
  tail: string,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder();
  yield encoder.encode(head);
  const { rowCount } = source;
  for (let from = 0; from < rowCount; from += ROWS_AT_ONCE) {
    let text = '';
    for (let at = from; at < Math.min(rowCount, from + ROWS_AT_ONCE); at += 1) text += row(at);
    yield encoder.encode(text);
    await new Promise((resolve) => setTimeout(resolve));
  }
  yield encoder.encode(tail);
}

/** Booleans are shown as JSON has them; PostgreSQL writes `t` and `f`. */
function postgresText(json: string, type: string): string | undefined {
  const text = textOf(json, type);
  return type === 'bool' ? text?.charAt(0) : text;
}

/** PostgreSQL puts the mark of the end of data in quotes too. */
const NEEDS_QUOTES = /[",\r\n]|^$|^\\\.$/;

function csvValue(text: string | undefined): string {
  if (text === undefined) return '';
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Two columns of one name both stay: `count`, `count_2`. */
function uniqueNames(names: readonly string[]): readonly string[] {
  const used = new Set<string>();
  return names.map((name) => {
    let unique = name;
    for (let number = 2; used.has(unique); number += 1) unique = `${name}_${number}`;
    used.add(unique);
    return unique;
  });
}
