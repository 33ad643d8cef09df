import { expect, it } from 'vitest';
import { CsvReader, FileParts, guessSeparator, type PartLimits } from '../../../http/console/screens/tables/import.ts';

function read(parts: readonly string[], separator = ',') {
  const reader = new CsvReader(separator);
  return [...parts.flatMap((part) => reader.push(part)), ...reader.end()].map(({ line, fields }) => [line, ...fields]);
}

const TEXT = 'id,name\r\n1,"a ""quoted"", name"\r\n2,\r\n3,""\n\n4,"two\r\nlines\rmore"\r5, x \n"","",\n6,ü😀';
const RECORDS = [
  [1, 'id', 'name'],
  [2, '1', 'a "quoted", name'],
  [3, '2', null],
  [4, '3', ''],
  [6, '4', 'two\r\nlines\rmore'],
  [9, '5', ' x '],
  [10, '', '', null],
  [11, '6', 'ü😀'],
];

it('fields in quotes have separators, quotes and line ends; empty ones without quotes are NULL', () => {
  expect(read([TEXT])).toEqual(RECORDS);
});

it('parts may be split anywhere', () => {
  for (let at = 0; at <= TEXT.length; at += 1) expect(read([TEXT.slice(0, at), TEXT.slice(at)]), String(at)).toEqual(RECORDS);
  expect(read([...TEXT])).toEqual(RECORDS);
});

it('the last line needs no end, and an end makes no record', () => {
  expect(read(['a'])).toEqual([[1, 'a']]);
  expect(read(['a\r\n'])).toEqual([[1, 'a']]);
  expect(read([''])).toEqual([]);
  expect(read(['a,\n'])).toEqual([[1, 'a', null]]);
  expect(read(['""'])).toEqual([[1, '']]);
});

it('what is not CSV is refused with its line', () => {
  expect(() => read(['a\nb"c'])).toThrow(expect.objectContaining({ line: 2, message: 'a field that has quotes must begin with them' }));
  expect(() => read(['a\n"b"c'])).toThrow(expect.objectContaining({ line: 2 }));
  expect(() => read(['a\n"b\n\n'])).toThrow(expect.objectContaining({ line: 2, message: expect.stringContaining('do not end') }));
});

it('what was written by the rules is read as it was', () => {
  const alphabet = ['a', '"', ',', '\n', '\r', ';', 'ü', ' '];
  let seed = 1;
  const next = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  for (let run = 0; run < 300; run += 1) {
    const rows = Array.from({ length: 1 + next(5) }, () =>
      Array.from({ length: 2 }, () =>
        next(6) === 0 ? null : Array.from({ length: next(6) }, () => alphabet[next(alphabet.length)]).join(''),
      ),
    );
    const text = rows
      .map((fields) => fields.map((field) => (field === null ? '' : `"${field.replaceAll('"', '""')}"`)).join(','))
      .join('\r\n');
    const cut = next(text.length + 1);
    expect(read([text.slice(0, cut), text.slice(cut)]).map(([, ...fields]) => fields)).toEqual(rows);
  }
});

it('the separator is the one that the first line has most of', () => {
  expect(['a,b;c,d', 'a;b,c;d\na,b,c,d', 'a\tb', 'a|b', 'a', ''].map(guessSeparator)).toEqual([',', ';', '\t', '|', ',', ',']);
});

const LIMITS: PartLimits = { records: 2, values: 100, characters: 1_000 };

it('a file comes in parts that keep the limits, and the last one says so', async () => {
  const parts = await FileParts.open(new Blob(['\ufeffa,b\n1,2\n3,4\n5,6\n']), LIMITS);
  expect((await parts.takeFirst())?.fields).toEqual(['a', 'b']);
  expect(await parts.next()).toMatchObject({ records: [{ line: 2 }, { line: 3 }], isLast: false });
  expect(await parts.next()).toMatchObject({ records: [{ line: 4, fields: ['5', '6'] }], isLast: true, bytesRead: 19 });
});

it('a record that is larger than a part is a part of its own', async () => {
  const parts = await FileParts.open(new Blob([`a\n${'x'.repeat(5_000)}\nb`]), LIMITS);
  const lengths = [await parts.next(), await parts.next(), await parts.next()].map(({ records }) =>
    records.map(({ fields }) => fields[0]?.length),
  );
  expect(lengths).toEqual([[1], [5_000], [1]]);
});

it('bytes that are not UTF-8 are refused', async () => {
  await expect(FileParts.open(new Blob([new Uint8Array([0x61, 0xff, 0x0a])]), LIMITS)).rejects.toThrow(TypeError);
});
