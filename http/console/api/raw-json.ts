/*
 * Parts of a JSON text as they stand there. JSON.parse would round large numbers, and lose white space and repeated members of `json`
 * values. The text comes from the API, so it is well-formed.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN = new Set([0x5b, 0x7b]);
const CLOSE = new Set([0x5d, 0x7d]);

/** The values of the array that begins at `at`. */
export function elementsOf(json: string, at = 0): string[] {
  const values: string[] = [];
  for (const [start, end] of eachElement(json, at)) values.push(json.slice(start, end));
  return values;
}

/** Where the values of the array that begins at `at` begin and end. */
export function* eachElement(json: string, at = 0): Generator<readonly [start: number, end: number]> {
  let next = skipSpace(json, skipSpace(json, at) + 1);
  while (next < json.length && !CLOSE.has(json.charCodeAt(next))) {
    const end = endOfValue(json, next);
    yield [next, end];
    next = skipSpace(json, end);
    if (json.charCodeAt(next) === COMMA) next = skipSpace(json, next + 1);
  }
}

/** Where the values of the members of the object that begins at `at` begin and end. */
export function membersOf(json: string, at = 0): Map<string, readonly [start: number, end: number]> {
  const members = new Map<string, readonly [number, number]>();
  let next = skipSpace(json, skipSpace(json, at) + 1);
  while (json.charCodeAt(next) === QUOTE) {
    const nameEnd = endOfString(json, next);
    const start = skipSpace(json, skipSpace(json, nameEnd) + (json.charCodeAt(skipSpace(json, nameEnd)) === COLON ? 1 : 0));
    const end = endOfValue(json, start);
    members.set(JSON.parse(json.slice(next, nameEnd)), [start, end]);
    next = skipSpace(json, end);
    if (json.charCodeAt(next) === COMMA) next = skipSpace(json, next + 1);
  }
  return members;
}

/** The offset after the value that begins at `at`. */
export function endOfValue(json: string, at: number): number {
  const code = json.charCodeAt(at);
  if (code === QUOTE) return endOfString(json, at);
  if (!OPEN.has(code)) return endOfScalar(json, at);
  let depth = 0;
  for (let next = at; next < json.length; next += 1) {
    const here = json.charCodeAt(next);
    if (here === QUOTE) next = endOfString(json, next) - 1;
    else if (OPEN.has(here)) depth += 1;
    else if (CLOSE.has(here)) {
      depth -= 1;
      if (depth === 0) return next + 1;
    }
  }
  return json.length;
}

function endOfString(json: string, at: number): number {
  for (let quote = json.indexOf('"', at + 1); quote >= 0; quote = json.indexOf('"', quote + 1)) {
    let before = quote - 1;
    while (json.charCodeAt(before) === BACKSLASH) before -= 1;
    // An even number of backslashes: they escape each other.
    if ((quote - before) % 2 === 1) return quote + 1;
  }
  return json.length;
}

function endOfScalar(json: string, at: number): number {
  let next = at;
  while (next < json.length && /[^,\]}\s]/.test(json.charAt(next))) next += 1;
  return next;
}

function skipSpace(json: string, at: number): number {
  let next = at;
  while (json.charCodeAt(next) <= 0x20) next += 1;
  return next;
}
