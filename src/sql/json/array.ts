import { encodeText, type ValueEncoder } from './scalars.ts';

const [OPEN, CLOSE, QUOTE, BACKSLASH, EQUALS] = [0x7b, 0x7d, 0x22, 0x5c, 0x3d];
const [LEFT_BRACKET, RIGHT_BRACKET, COMMA] = [0x5b, 0x5d, 0x2c];
const NULL = Buffer.from('null');

/**
 * Turns array literals into JSON arrays, element by element. Bounds before the braces (`[2:3]={a,b}`) are left out:
 * JSON arrays have none.
 * @param delimiter between elements: a comma for every type but box
 * @see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
 */
export function arrayEncoder(element: ValueEncoder, delimiter = ','): ValueEncoder {
  const separator = delimiter.charCodeAt(0);
  return (out, source, start, end) => {
    let at = skipBounds(source, start, end);
    if (source[at] !== OPEN) {
      encodeText(out, source, start, end);
      return;
    }
    while (at < end) {
      const byte = source[at] ?? 0;
      if (byte === OPEN) out.byte(LEFT_BRACKET);
      else if (byte === CLOSE) out.byte(RIGHT_BRACKET);
      else if (byte === separator) out.byte(COMMA);
      else if (byte === QUOTE) {
        const close = endOfQuoted(source, at, end);
        const plain = withoutBackslashes(source.subarray(at + 1, close));
        element(out, plain, 0, plain.length);
        at = close;
      } else {
        const stop = endOfPlain(source, at, end, separator);
        if (isNull(source, at, stop)) out.copy(NULL);
        else element(out, source, at, stop);
        at = stop - 1;
      }
      at += 1;
    }
  };
}

function skipBounds(source: Uint8Array, start: number, end: number): number {
  if (source[start] !== LEFT_BRACKET) return start;
  const equals = source.indexOf(EQUALS, start);
  return equals < 0 || equals >= end ? start : equals + 1;
}

/** @returns where the closing quote stands */
function endOfQuoted(source: Uint8Array, open: number, end: number): number {
  let at = open + 1;
  while (at < end && source[at] !== QUOTE) at += source[at] === BACKSLASH ? 2 : 1;
  return at;
}

function endOfPlain(source: Uint8Array, start: number, end: number, separator: number): number {
  let at = start;
  while (at < end && source[at] !== separator && source[at] !== CLOSE) at += 1;
  return at;
}

/** Only without quotes; the string 'NULL' comes with them. */
function isNull(source: Uint8Array, start: number, end: number): boolean {
  return end - start === 4 && String.fromCharCode(...source.subarray(start, end)).toUpperCase() === 'NULL';
}

/** A backslash makes the character after it stand for itself. */
function withoutBackslashes(quoted: Uint8Array): Uint8Array {
  if (!quoted.includes(BACKSLASH)) return quoted;
  const plain = new Uint8Array(quoted.length);
  let length = 0;
  for (let at = 0; at < quoted.length; at++) {
    if (quoted[at] === BACKSLASH) at += 1;
    plain[length++] = quoted[at] ?? 0;
  }
  return plain.subarray(0, length);
}
