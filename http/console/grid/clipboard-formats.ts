import { quoteLiteral } from '../quoting.ts';
import type { Range, Selection } from './geometry.ts';
import type { GridSource } from './source.ts';
import { textOf } from './value-text.ts';

/** Values with tabs between them, as spreadsheets take them. NULL is nothing. */
export function tsvOf(source: GridSource, selection: Selection): string {
  const field = (text = '') => (/[\t\r\n"]/.test(text) ? inQuotes(text) : text);
  return rowsOf(source, selection, (texts) => texts.map(field).join('\t')).join('\n');
}

/** With a line of names. NULL is nothing, and an empty text is `""`. @see https://www.rfc-editor.org/rfc/rfc4180 */
export function csvOf(source: GridSource, selection: Selection): string {
  const field = (text?: string) => (text === '' || (text !== undefined && /[\r\n",]/.test(text)) ? inQuotes(text) : (text ?? ''));
  const head = namesOf(source, selection).map(field).join(',');
  return [head, ...rowsOf(source, selection, (texts) => texts.map(field).join(',')), ''].join('\r\n');
}

/** Objects with the values as the API sent them: an array, or one object for one row. Of two columns with one name the second becomes `name_2`. */
export function jsonOf(source: GridSource, { rows, columns }: Selection): string {
  const names = uniqueOf(namesOf(source, { rows, columns })).map((name) => JSON.stringify(name));
  const objects = numbersIn(rows).map((row) => {
    const members = names.map((name, index) => `${name}: ${source.valueAt(row, columns.from + index)}`);
    return `{${members.join(', ')}}`;
  });
  return objects.length === 1 ? `${objects[0]}\n` : `[\n  ${objects.join(',\n  ')}\n]\n`;
}

/**
 * A statement that inserts the rows. Its literals mean the same whatever `standard_conforming_strings` is.
 * @param tableName quoted where it has to be
 */
export function insertOf(source: GridSource, selection: Selection, tableName: string, quoteName: (name: string) => string): string {
  const names = namesOf(source, selection).map(quoteName).join(', ');
  const rows = rowsOf(source, selection, (texts) => `  (${texts.map(literalOf).join(', ')})`);
  return `INSERT INTO ${tableName} (${names}) VALUES\n${rows.join(',\n')};\n`;
}

function literalOf(text: string | undefined): string {
  return text === undefined ? 'NULL' : quoteLiteral(text);
}

function inQuotes(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}

function rowsOf(source: GridSource, { rows, columns }: Selection, lineOf: (texts: readonly (string | undefined)[]) => string): string[] {
  const types = source.columns.slice(columns.from, columns.to).map(({ type }) => type);
  return numbersIn(rows).map((row) => lineOf(types.map((type, index) => textOf(source.valueAt(row, columns.from + index), type))));
}

function namesOf(source: GridSource, { columns }: Selection): string[] {
  return source.columns.slice(columns.from, columns.to).map(({ name }) => name);
}

function uniqueOf(names: readonly string[]): string[] {
  const taken = new Set<string>();
  return names.map((name) => {
    let unique = name;
    for (let number = 2; taken.has(unique); number += 1) unique = `${name}_${number}`;
    taken.add(unique);
    return unique;
  });
}

function numbersIn({ from, to }: Range): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
}
