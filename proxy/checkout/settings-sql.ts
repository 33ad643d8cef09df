import type { Settings } from '../../src/backend/session-state.ts';

/**
 * The SQL that changes a session from one set of settings to another.
 * @returns undefined when they are equal
 */
export function settingsChange(from: Settings, to: Settings): string | undefined {
  const reset = [...from.keys()].filter((name) => !to.has(name)).map((name) => `RESET ${quotedName(name)};`);
  const set = [...to].filter(([name, value]) => from.get(name) !== value).map(([name, value]) => setting(name, value));
  if (reset.length === 0 && set.length === 0) return undefined;
  return `${reset.join('')}${set.length === 0 ? '' : `SELECT ${set.join(', ')}`}`;
}

function setting(name: string, value: string): string {
  const call = `pg_catalog.set_config(${literal(name)}, ${literal(value)}, false)`;
  // Where there have been temporary tables, this one cannot be changed, and an error would end the session.
  return name === 'temp_buffers'
    ? `CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN ${call} END`
    : call;
}

/**
 * The SQL that has customized options exist, empty, as they do in a session that has set them until the end of a transaction.
 * @returns undefined when there is none to make
 */
export function makeOptions(options: readonly string[]): string | undefined {
  if (options.length === 0) return undefined;
  const names = options.map((name) => `(${literal(name)})`).join(', ');
  return `SELECT pg_catalog.set_config(n, '', true) FROM (VALUES ${names}) AS o (n) WHERE pg_catalog.current_setting(n, true) IS NULL`;
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
