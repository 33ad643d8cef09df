/** Non-ASCII spaces (RFC 3454 C.1.2) become a space. */
const SPACES = /[\u00A0\u1680\u2000-\u200B\u202F\u205F\u3000]/gu;
/** Commonly mapped to nothing (RFC 3454 B.1). */
const IGNORED = /\u00AD|\u034F|\u1806|[\u180B-\u180D]|\u200C|\u200D|\u2060|[\uFE00-\uFE0F]|\uFEFF/gu;
/** RFC 3454 C.2.1 to C.9: control characters, private use, non-characters, surrogates, characters that change how text is shown, tags. */
const PROHIBITED = new RegExp(
  [
    '[\\p{Cc}\\p{Co}\\p{Cs}\\p{Noncharacter_Code_Point}]',
    '[\\u0340\\u0341\\u06DD\\u070F\\u180E\\u200E\\u200F\\u2028-\\u202E\\u2061-\\u2063\\u206A-\\u206F\\u2FF0-\\u2FFB\\uFFF9-\\uFFFD]',
    '[\\u{1D173}-\\u{1D17A}\\u{E0001}\\u{E0020}-\\u{E007F}]',
  ].join('|'),
  'u',
);
/** RFC 3454 A.1, but by the Unicode version of Node instead of 3.2. */
const UNASSIGNED = /\p{Cn}/u;
/** Letters written from right to left (RFC 3454 D.1), by script; then every other letter (D.2). */
const RIGHT_TO_LEFT = /(?=\p{L})[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u;
const LEFT_TO_RIGHT = /(?![\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}])\p{L}/u;

/**
 * SASLprep (RFC 4013) as Postgres applies it to passwords: plain ASCII stays as it is, and a password that SASLprep would
 * refuse is used unchanged instead.
 * @see https://github.com/postgres/postgres/blob/master/src/common/saslprep.c
 */
export function saslprep(password: string): string {
  if (isAscii(password)) return password;
  const mapped = password.replace(SPACES, ' ').replace(IGNORED, '');
  if (mapped === '' || PROHIBITED.test(mapped) || UNASSIGNED.test(mapped) || mixesDirections(mapped)) return password;
  return mapped.normalize('NFKC');
}

function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length;
}

/** RFC 3454 section 6: text with a right-to-left letter has no left-to-right one, and begins and ends with right-to-left. */
function mixesDirections(text: string): boolean {
  if (!RIGHT_TO_LEFT.test(text)) return false;
  const characters = Array.from(text);
  const ends = [characters[0] ?? '', characters.at(-1) ?? ''];
  return LEFT_TO_RIGHT.test(text) || !ends.every((character) => RIGHT_TO_LEFT.test(character));
}
