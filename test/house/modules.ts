import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** Of the repository; the report runs from dist/. */
export const ROOT = new URL('../../', import.meta.url).pathname.replace(/dist\/$/, '');
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
    return /\.tsx?$/.test(path) ? [path] : [];
  });
}

function importsOf(file: string): readonly string[] {
  const text = textOf(file);
  return [...text.matchAll(IMPORT)].map(([, path = '']) => normalize(join(dirname(file), path)));
}

/** A private field that sums up bytes, characters or lengths, or what is left of them; a queue's length is a number of entries. */
const SUM = /this\.(#\w+) [+-]= [^;]*(?:bytes|(?<!#queue\.)length|characters)/gi;
const MAXIMUM = '(?:[A-Z_]*MAX[A-Z_]*|this\\.#\\w*[mM]ax\\w*)';

/** @returns the private fields that sum up bytes and are compared with a maximum that does not change, each after its class */
export function byteLimitsByHand(text: string): readonly string[] {
  return text.split(/^(?=(?:export )?class )/m).flatMap((part) => {
    const [, name = ''] = /^(?:export )?class (\w+)/.exec(part) ?? [];
    const fields = new Set([...part.matchAll(SUM)].map(([, field = '']) => field));
    const limited = [...fields].filter((field) => new RegExp(`this\\.${field}\\b[^;&|?]* (?:>|>=|<|<=) ${MAXIMUM}`).test(part));
    return limited.map((field) => `${name}${field}`);
  });
}

/** A collection that loses what came first, or all, when it has more than a maximum. */
const EVICTION = new RegExp(
  `for \\(const [^)]+ of this\\.(#\\w+)[^{]*\\{[^}]*this\\.\\1\\.size[^}]*this\\.\\1\\.delete\\(|this\\.(#\\w+)\\.size >=? ${MAXIMUM}\\)[^}]*?this\\.\\2 = new (?:Map|Set)`,
  'g',
);

/** A comparison with the type byte of a backend's message. */
const ASKS_TYPE = /(?:\bcase|[!=]==) BackendType\.\w+/;

/** Files that tell the messages of a backend's replies apart. */
export function replyReaders(files: Iterable<string>): readonly string[] {
  return [...files].filter((file) => ASKS_TYPE.test(textOf(file))).sort();
}

export function evictionsByHand(text: string): number {
  return [...text.matchAll(EVICTION)].length;
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

/** As in CONTRIBUTING.md, lowest first. What is in none of them puts the others together. */
const LAYERS: readonly RegExp[] = [
  /^src\/runtime\//,
  /^src\/(?:errors|system-errors|observation|config|file-descriptors)\.ts$/,
  /^src\/protocol\//,
  /^src\/syntax\//,
  /^src\/(?:auth|catalog|backend)\//,
  /^src\/placement\//,
  /^src\/router\//,
  /^src\/rewriting\//,
  /^src\/multiplex\//,
  /^src\/(?:sql|observers)\//,
  /^(?:proxy|http)\//,
];

/** Imports of a file in a higher layer, and of the other door. */
export function arrowsUp(graph: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const rank = (file: string) => (LAYERS.findIndex((layer) => layer.test(file)) + LAYERS.length + 1) % (LAYERS.length + 1);
  return [...graph].flatMap(([file, imports]) =>
    imports.filter((one) => rank(one) > rank(file) || isOtherDoor(file, one)).map((one) => `${file} → ${one}`),
  );
}

function isOtherDoor(file: string, other: string): boolean {
  const doors = ['proxy/', 'http/'] as const;
  return doors.some((door) => file.startsWith(door)) && doors.some((door) => other.startsWith(door)) && file[0] !== other[0];
}

/** The file that declares a class or a function. */
export function fileOf(symbol: string): string | undefined {
  const declares = new RegExp(`^(?:export )?(?:class|(?:async )?function) ${symbol}\\b`, 'm');
  return TOPS.flatMap((top) => filesIn(top)).find((file) => declares.test(textOf(file)));
}

export function textOf(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}
