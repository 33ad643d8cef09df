/** Keywords and names at which the reader acts. All others matter only next to these, and of literals. */
const KEYWORDS = [
  'public',
  'schema',
  'search_path',
  'listen',
  'unlisten',
  'notify',
  'pg_notify',
  'prepare',
  'set',
  'update',
  'execute',
  'into',
  'using',
  'loop',
  'language',
  'declare',
  'begin',
  'rule',
  'standard_conforming_strings',
] as const;

export type Keyword = (typeof KEYWORDS)[number];

const BY_TEXT = new Map<string, Keyword>(KEYWORDS.map((word) => [word, word]));

/** Bit n of an entry means that a keyword of n characters begins with that letter. Most identifiers then need no lookup in the map. */
const LENGTHS = new Uint32Array(128);
for (const word of KEYWORDS) {
  const letter = word.charCodeAt(0);
  LENGTHS[letter] = LENGTHS[letter & ~0x20] = (LENGTHS[letter] ?? 0) | (1 << word.length);
}

/** The keyword from `start` to `end`, in upper or lower case; undefined for other identifiers. */
export function keywordAt(text: string, start: number, end: number): Keyword | undefined {
  const length = end - start;
  if (length > 27 || (((LENGTHS[text.charCodeAt(start) & 0x7f] ?? 0) >> length) & 1) === 0) return undefined;
  return BY_TEXT.get(text.slice(start, end).toLowerCase());
}

/** Whether the token from `start` to `end` is that keyword. @param word in lower case */
export function isWordAt(text: string, start: number, end: number, word: string): boolean {
  if (end - start !== word.length) return false;
  for (let at = 0; at < word.length; at++) {
    const code = text.charCodeAt(start + at);
    const wanted = word.charCodeAt(at);
    if (code !== wanted && (code >= 0x80 || (code | 0x20) !== wanted)) return false;
  }
  return true;
}
