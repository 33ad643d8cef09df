import { dirname } from 'node:path';
import { textOf } from './modules.ts';

/** How the code is cut into files, and how much of one file another one sees. */
export interface Sizes {
  readonly files: number;
  readonly folders: number;
  readonly lines: number;
  readonly medianFile: number;
  /** Half of all lines are in files of at most this length. */
  readonly fileOfMedianLine: number;
  readonly largestFile: string;
}

export function sizesOf(files: readonly string[]): Sizes {
  const lengths = files.map(linesOf).sort((a, b) => a - b);
  const largest = lengths.at(-1) ?? 0;
  return {
    files: files.length,
    folders: new Set(files.map((file) => dirname(file))).size,
    lines: lengths.reduce((sum, length) => sum + length, 0),
    medianFile: lengths[Math.floor(lengths.length / 2)] ?? 0,
    fileOfMedianLine: lengthWithHalf(lengths),
    largestFile: `${largest}, ${files.find((file) => linesOf(file) === largest)}`,
  };
}

/** @param lengths the shortest first */
function lengthWithHalf(lengths: readonly number[]): number {
  let left = lengths.reduce((sum, length) => sum + length, 0) / 2;
  for (const length of lengths) {
    left -= length;
    if (left <= 0) return length;
  }
  return 0;
}

function linesOf(file: string): number {
  return textOf(file).split('\n').length - 1;
}

const NAMED_IMPORT = /^(?:import|export) (?:type )?\{([^}]*)\} from '(\.[^']+)'/gm;

/** @returns of the names that files import from each other: how many there are, and how many of them one file alone imports */
export function sharedExports(graph: ReadonlyMap<string, readonly string[]>, resolve: (from: string, path: string) => string) {
  const users = new Map<string, Set<string>>();
  for (const file of graph.keys()) {
    for (const [, names = '', path = ''] of textOf(file).matchAll(NAMED_IMPORT)) {
      for (const name of names.split(',').map(withoutAlias).filter(Boolean)) {
        const symbol = `${resolve(file, path)} ${name}`;
        users.set(symbol, (users.get(symbol) ?? new Set()).add(file));
      }
    }
  }
  return { all: users.size, byOneFile: [...users.values()].filter((files) => files.size === 1).length };
}

function withoutAlias(name: string): string {
  return name
    .trim()
    .replace(/^type /, '')
    .replace(/ as .*$/, '');
}

/** @returns how many functions are given a value of this type, and how many files import it */
export function takersOf(type: string, files: Iterable<string>): { readonly functions: number; readonly files: number } {
  const parameter = new RegExp(`[(,]\\s*(?:readonly )?(?:\\w+|\\{[^{}()]*\\})\\??: ${type}\\b`, 'g');
  const imports = new RegExp(`^import [^;]*\\b${type}\\b[^;]* from '\\.`, 'm');
  let [functions, importing] = [0, 0];
  for (const file of files) {
    const text = textOf(file);
    functions += [...text.matchAll(parameter)].length;
    if (imports.test(text)) importing += 1;
  }
  return { functions, files: importing };
}
