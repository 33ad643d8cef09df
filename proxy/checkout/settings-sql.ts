import type { Settings } from '../../src/backend/session-state.ts';

/**
 * The SQL that changes a session from one set of settings to another.
 * @returns undefined when they are equal
 */
export function settingsChange(from: Settings, to: Settings): string | undefined {
  const reset = [...from.keys()].filter((name) => !to.has(name)).map((name) => `RESET ${quotedName(name)};`);
  const set = [...to]
    .filter(([name, value]) => from.get(name) !== value)
    .map(([name, value]) => `${literal(name)}, ${literal(value)}, false`);
  if (reset.length === 0 && set.length === 0) return undefined;
  const calls = set.map((call) => `pg_catalog.set_config(${call})`);
  return `${reset.join('')}${calls.length === 0 ? '' : `SELECT ${calls.join(', ')}`}`;
}

/** A custom setting's name has two parts. */
function quotedName(name: string): string {
  return name
    .split('.')
    .map((part) => `"${part.replaceAll('"', '""')}"`)
    .join('.');
}

/** A string literal that is right with every value of `standard_conforming_strings`. */
export function literal(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`;
  return text.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted;
}
