/** A larger head is left to Node's parser. */
export const HEAD_MAX_BYTES = 8_192;

export const END_OF_HEAD = '\r\n\r\n';
export const END_OF_LINE = '\r\n';

export interface Header {
  /** The lower-case name. */
  readonly name: string;
  readonly pattern: RegExp | undefined;
}

/**
 * Reads the headers of a well-formed head.
 * @param known finds the rule for a header's name, as spelled
 * @returns undefined if a header is unknown, occurs twice, or has a value that its pattern does not match
 */
export function readHeaders(head: string, known: (written: string) => Header | undefined): ReadonlyMap<string, string> | undefined {
  const headers = new Map<string, string>();
  let at = head.indexOf(END_OF_LINE) + END_OF_LINE.length;
  while (at < head.length) {
    const colon = head.indexOf(':', at);
    const end = head.indexOf(END_OF_LINE, colon);
    const header = known(head.slice(at, colon));
    if (header === undefined || headers.has(header.name)) return undefined;
    const value = head.slice(colon + 1, end).trim();
    if (header.pattern?.test(value) === false) return undefined;
    headers.set(header.name, value);
    at = end + END_OF_LINE.length;
  }
  return headers;
}
