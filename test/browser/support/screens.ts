import { readFileSync } from 'node:fs';

const SOURCE = readFileSync(new URL('../../../http/console/screens/screens.ts', import.meta.url), 'utf8');

/** All screens of the console, in the order of its navigation: path and title. */
export const SCREEN_NAMES: readonly (readonly [path: string, title: string])[] = namesIn(SOURCE);

/** The console has types of its own, so its modules are not imported here. */
function namesIn(source: string): readonly (readonly [string, string])[] {
  const names = [...source.matchAll(/^ {4}path: '([a-z]+)',\n {4}title: '([^']+)',$/gm)].map(
    ([, path = '', title = '']) => [path, title] as const,
  );
  if (names.length !== source.match(/await import\(/g)?.length) throw new Error('screens.ts has screens that are written otherwise');
  return names;
}
