import { ServiceError } from '../../src/errors.ts';

/** About this much is parsed in a millisecond. */
export const AT_ONCE_BYTES = 65_536;

export const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** @returns the offset of the first quote, backslash or control character, or the end of the part to read */
export function endOfPlain(bytes: Buffer, start: number): number {
  const end = Math.min(bytes.length, start + AT_ONCE_BYTES);
  let at = start;
  while (at < end) {
    const byte = bytes[at] as number;
    if (byte === QUOTE || byte === BACKSLASH || byte < 0x20) break;
    at += 1;
  }
  return at;
}

/** By its first two digits, `d8` to `db`. */
function isHighHalf(first: number, second: number): boolean {
  const letter = second | 0x20;
  return (first | 0x20) === 0x64 && (second === 0x38 || second === 0x39 || letter === 0x61 || letter === 0x62);
}

/** Backslash, `u` and four digits. */
const UNICODE_ESCAPE_BYTES = 6;

/**
 * @returns the offset of the closing quote, or an offset after the limit that is neither within a character nor between the
 * halves of a surrogate pair. Errors before it are found when that part is parsed
 */
export function endOfPart(bytes: Buffer, start: number, limit: number): number {
  let isHalf = false;
  let at = start;
  while (at < bytes.length) {
    const byte = bytes[at] as number;
    if (byte === QUOTE) return at;
    if (byte < 0x20) break;
    const mayEnd = (byte & 0xc0) !== 0x80 && (!isHalf || at > limit + UNICODE_ESCAPE_BYTES);
    if (at >= limit && mayEnd) return at;
    const isUnicode = byte === BACKSLASH && bytes[at + 1] === 0x75;
    isHalf = isUnicode && isHighHalf(bytes[at + 2] ?? 0, bytes[at + 3] ?? 0);
    at += isUnicode ? UNICODE_ESCAPE_BYTES : byte === BACKSLASH ? 2 : 1;
  }
  throw malformed(`a string is not closed where it should be, at byte ${Math.min(at, bytes.length)}`);
}

/** @param text a JSON string, with its quotes */
export function unescaped(text: string): string {
  let value: string;
  try {
    value = JSON.parse(text) as string;
  } catch (error) {
    throw malformed(reasonOf(error));
  }
  if (/\\u[dD][89a-fA-F]/.test(text)) refuseUnpairedSurrogates(value);
  return value;
}

/**
 * Refuses an unpaired surrogate, which would silently become U+FFFD in UTF-8.
 * @throws ServiceError `invalid_request`
 */
export function refuseUnpairedSurrogates(text: string): void {
  if (/\p{Surrogate}/u.test(text))
    throw new ServiceError('invalid_request', 'the body holds half of a surrogate pair (\\ud800 to \\udfff)');
}

/** @param error of JSON.parse */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 200) : '';
}

export function malformed(reason: string): ServiceError {
  return new ServiceError('invalid_request', `the body is not valid JSON: ${reason}`);
}
