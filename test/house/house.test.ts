import { basename, dirname } from 'node:path';
import { expect, it } from 'vitest';
import { cycles, entriesPerFolder, modules, sizeOf, textOf } from './modules.ts';

const graph = modules();
const ENTRIES_MAX = 12;
/** A folder for each layer, and what starts and assembles them. */
const LARGER: ReadonlySet<string> = new Set(['src']);
const README_LINES_MAX = 220;
const README_WORDS_MAX = 1_500;
const FOLDER_README_LINES_MAX = 40;

it('no files import each other, types included', () => {
  expect(cycles(graph)).toEqual([]);
});

it('cycles are found', () => {
  const files = new Map([
    ['a', ['b', 'c']],
    ['b', ['c']],
    ['c', ['d', 'elsewhere']],
    ['d', ['b']],
    ['e', ['a']],
  ]);
  expect(cycles(files).map((group) => [...group].sort())).toEqual([['b', 'c', 'd']]);
});

it(`no folder has more than ${ENTRIES_MAX} entries`, () => {
  const larger = [...entriesPerFolder(graph.keys())].filter(([folder, entries]) => entries > ENTRIES_MAX && !LARGER.has(folder));
  expect(larger).toEqual([]);
});

it('the README is for the first ten minutes', () => {
  const { lines, words } = sizeOf('README.md');
  expect(lines).toBeLessThanOrEqual(README_LINES_MAX);
  expect(words).toBeLessThanOrEqual(README_WORDS_MAX);
});

it(`each folder of more than eight files says what is in it, in at most ${FOLDER_README_LINES_MAX} lines`, () => {
  const files = [...graph.keys()];
  const large = [...new Set(files.map((file) => dirname(file)))].filter((folder) => {
    return !LARGER.has(folder) && files.filter((file) => dirname(file) === folder).length > 8;
  });
  for (const folder of large) {
    expect(sizeOf(`${folder}/README.md`).lines, folder).toBeLessThanOrEqual(FOLDER_README_LINES_MAX);
    const named = textOf(`${folder}/README.md`);
    for (const file of files) if (dirname(file) === folder) expect(named, folder).toContain(`\`${basename(file)}\``);
  }
});
