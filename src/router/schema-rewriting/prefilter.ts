/**
 * A statement without any of these strings needs no rewriting. `public` is in every name of the schema; LISTEN, UNLISTEN, NOTIFY
 * and pg_notify name channels; PREPARE TRANSACTION is refused; the others are in the names of columns with which a parameter or the database's name is compared.
 * A name that is written with escapes (`U&"\0070ublic"`) is missed if the text contains none of the strings elsewhere.
 */
const SEARCHED = ['public', 'listen', 'notify', 'prepar', 'schema', 'nspnam', 'datnam'].map((word) => Buffer.from(word));
/** The length of each of these strings. */
export const MENTION_LENGTH = 6;

/** This bit is set in a skip if one of the strings can begin with the character; the other bits are the distance. */
const BEGINS = 8;

/** The shift table of Horspool's algorithm, from right to left: by character, the distance to the next offset where a string may begin. */
const SKIPS = new Uint8Array(256).fill(MENTION_LENGTH);
/** The searched strings by the code of their first letter, in lower case. */
const BY_LETTER: Buffer[][] = Array.from({ length: 256 }, () => []);

for (let at = MENTION_LENGTH - 1; at > 0; at--) {
  for (const word of SEARCHED) SKIPS[word[at] as number] = SKIPS[(word[at] as number) & ~0x20] = at;
}
for (const word of SEARCHED) {
  const letter = word[0] as number;
  SKIPS[letter] = SKIPS[letter & ~0x20] = (SKIPS[letter] as number) | BEGINS;
  BY_LETTER[letter]?.push(word);
}

/**
 * The offset after the last of these strings, in upper or lower case, between `from` and `to`; -1 if there is none.
 * Reads about one character in four.
 */
export function lastMention(text: string | Buffer, from = 0, to = text.length): number {
  return typeof text === 'string' ? inString(text, from, to) : inBytes(text, from, to);
}

function inBytes(bytes: Buffer, from: number, to: number): number {
  for (let at = to - MENTION_LENGTH; at >= from; ) {
    const code = bytes[at] as number;
    const skip = SKIPS[code] as number;
    if (skip >= BEGINS) {
      for (const word of BY_LETTER[code | 0x20] as Buffer[]) {
        let matched = 1;
        while (matched < MENTION_LENGTH && ((bytes[at + matched] as number) | 0x20) === word[matched]) matched++;
        if (matched === MENTION_LENGTH) return at + MENTION_LENGTH;
      }
    }
    at -= skip & (BEGINS - 1);
  }
  return -1;
}

function inString(text: string, from: number, to: number): number {
  for (let at = to - MENTION_LENGTH; at >= from; ) {
    const code = text.charCodeAt(at);
    const skip = code < 256 ? (SKIPS[code] as number) : MENTION_LENGTH;
    if (skip >= BEGINS) {
      for (const word of BY_LETTER[code | 0x20] as Buffer[]) {
        let matched = 1;
        while (matched < MENTION_LENGTH && (text.charCodeAt(at + matched) | 0x20) === word[matched]) matched++;
        if (matched === MENTION_LENGTH) return at + MENTION_LENGTH;
      }
    }
    at -= skip & (BEGINS - 1);
  }
  return -1;
}
