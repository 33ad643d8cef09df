/**
 * The only words that can make a statement need rewriting: every name of the place says `public`, every channel is named
 * by LISTEN, UNLISTEN, NOTIFY or pg_notify, and the columns with which a parameter or the database's name is compared have the others. A name that is itself spelled with escapes (`U&"\0070ublic"`) goes unnoticed
 * where nothing else in the text says one of them.
 */
const WORDS = ['public', 'listen', 'notify', 'schema', 'nspnam', 'datnam'].map((word) => Buffer.from(word));
/** All of them have it. */
export const MENTION_LENGTH = 6;

/** Set in a skip where a word can begin; the other bits are the distance. */
const BEGINS = 8;

/** Horspool's skips, walking left: for the character at a place, the distance to the next one where a word could begin. */
const SKIPS = new Uint8Array(256).fill(MENTION_LENGTH);
/** The words that begin with a letter, by the letter's lower-case code. */
const BY_LETTER: Buffer[][] = Array.from({ length: 256 }, () => []);

for (let at = MENTION_LENGTH - 1; at > 0; at--) {
  for (const word of WORDS) SKIPS[word[at] as number] = SKIPS[(word[at] as number) & ~0x20] = at;
}
for (const word of WORDS) {
  const letter = word[0] as number;
  SKIPS[letter] = SKIPS[letter & ~0x20] = (SKIPS[letter] as number) | BEGINS;
  BY_LETTER[letter]?.push(word);
}

/**
 * Offset behind the last of those words, whatever its case, that lies between `from` and `to`; -1 when there is none.
 * Looks at about one character in four.
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
