import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

const ROOT = new URL('../../', import.meta.url).pathname;
const TOPS = ['src', 'proxy', 'http'] as const;
const IMPORT = /^(?:import|export)\b[^;]*? from '(\.[^']+)'/gm;

/** The product's source files, each with those that it imports, types included; paths are relative to the repository. */
export function modules(): ReadonlyMap<string, readonly string[]> {
  const files = TOPS.flatMap((top) => filesIn(top));
  return new Map(files.map((file) => [file, importsOf(file)]));
}

function filesIn(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return filesIn(path);
    return path.endsWith('.ts') ? [path] : [];
  });
}

function importsOf(file: string): readonly string[] {
  const text = textOf(file);
  return [...text.matchAll(IMPORT)].map(([, path = '']) => normalize(join(dirname(file), path)));
}

/** How many entries each folder has, those without source files of their own left out. */
export function entriesPerFolder(files: Iterable<string>): ReadonlyMap<string, number> {
  const entries = new Map<string, Set<string>>();
  for (const file of files) {
    for (let path = file; dirname(path) !== '.'; path = dirname(path)) {
      const folder = dirname(path);
      entries.set(folder, (entries.get(folder) ?? new Set()).add(path));
    }
  }
  return new Map([...entries].map(([folder, paths]) => [folder, paths.size]));
}

/** Groups of files that import each other, directly or not (Tarjan's strongly connected components). */
export function cycles(graph: ReadonlyMap<string, readonly string[]>): readonly (readonly string[])[] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (file: string): number => {
    const index = order.size;
    order.set(file, index);
    lowest.set(file, index);
    stack.push(file);
    for (const next of graph.get(file) ?? []) {
      const low = order.has(next) ? (stack.includes(next) ? (order.get(next) ?? index) : index) : graph.has(next) ? visit(next) : index;
      lowest.set(file, Math.min(lowest.get(file) ?? index, low));
    }
    if (lowest.get(file) === index) {
      const group = stack.splice(stack.indexOf(file));
      if (group.length > 1) found.push(group);
    }
    return lowest.get(file) ?? index;
  };
  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return found;
}

export function textOf(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

export function sizeOf(path: string): { readonly lines: number; readonly words: number } {
  const text = textOf(path);
  return { lines: text.trimEnd().split('\n').length, words: text.split(/\s+/).filter(Boolean).length };
}
