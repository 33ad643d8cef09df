/** An item of a list of identifiers, as settings hold it: quoted, or up to a comma or white space. */
const ITEM = /"((?:[^"]|"")*)"|"[^"]*$|[^\s,"]+/g;

/**
 * Where the items of a search_path's value that name `schema` say so, from left to right.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/varlena.c SplitIdentifierString
 */
export function schemasNamed(value: string, schema: string): [start: number, end: number][] {
  const places: [number, number][] = [];
  for (const { 0: item, 1: quoted, index } of value.matchAll(ITEM)) {
    if (quoted === schema) places.push([index + 1, index + 1 + schema.length]);
    else if (quoted === undefined && item.toLowerCase() === schema) places.push([index, index + item.length]);
  }
  return places;
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

/** The value of search_path to send to the server for one that a client sent: in its startup message or its `options`. */
export function serverSearchPath(clientValue: string, schema: string): string {
  return renamed(clientValue, 'public', schema);
}

/**
 * The value of search_path to show to a client for the server's: in ParameterStatus (from PostgreSQL 18 on) and in the
 * row of SHOW search_path. A client that named its own schema by the organization's name reads `public` too.
 */
export function clientSearchPath(serverValue: string, schema: string): string {
  return renamed(serverValue, schema, 'public');
}
