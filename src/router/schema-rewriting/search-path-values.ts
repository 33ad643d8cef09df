/** An item in a setting's list of identifiers: a quoted identifier, or what ends at a comma or white space. */
const ITEM = /"((?:[^"]|"")*)"|"[^"]*$|[^\s,"]+/g;

/**
 * The ranges of a search_path's value in which an item names `schema`, from left to right.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/varlena.c SplitIdentifierString
 */
export function schemasNamed(value: string, schema: string): [start: number, end: number][] {
  const ranges: [number, number][] = [];
  for (const { 0: item, 1: quoted, index } of value.matchAll(ITEM)) {
    if (quoted === schema) ranges.push([index + 1, index + 1 + schema.length]);
    else if (quoted === undefined && item.toLowerCase() === schema) ranges.push([index, index + item.length]);
  }
  return ranges;
}

function renamed(value: string, from: string, to: string): string {
  let text = '';
  let at = 0;
  for (const [start, end] of schemasNamed(value, from)) {
    text += value.slice(at, start) + to;
    at = end;
  }
  return text + value.slice(at);
}

/** The search_path to send to the server for one from a client's StartupMessage or its `options`. */
export function serverSearchPath(clientValue: string, schema: string): string {
  return renamed(clientValue, 'public', schema);
}

/**
 * The search_path to show to a client, in ParameterStatus (since PostgreSQL 18) and in the row of SHOW search_path. The client
 * reads `public` even if it has set the organization's schema by its real name.
 */
export function clientSearchPath(serverValue: string, schema: string): string {
  return renamed(serverValue, schema, 'public');
}
