export const Code = {
  Tab: 0x09,
  Newline: 0x0a,
  Return: 0x0d,
  Space: 0x20,
  DoubleQuote: 0x22,
  Dollar: 0x24,
  Ampersand: 0x26,
  Quote: 0x27,
  Open: 0x28,
  Close: 0x29,
  Star: 0x2a,
  Plus: 0x2b,
  Comma: 0x2c,
  Minus: 0x2d,
  Dot: 0x2e,
  Slash: 0x2f,
  Colon: 0x3a,
  Semicolon: 0x3b,
  Equals: 0x3d,
  OpenBracket: 0x5b,
  Backslash: 0x5c,
  CloseBracket: 0x5d,
} as const;

/** The kind of token that a character can begin. */
export const CLASS = {
  Unknown: 0,
  Space: 1,
  Letter: 2,
  Digit: 3,
  Operator: 4,
  Punctuation: 5,
  Quote: 6,
  DoubleQuote: 7,
  Dollar: 8,
  Colon: 9,
  Dot: 10,
};

/** The class of each ASCII character. All other characters are letters. */
const CLASSES = classes({
  [CLASS.Space]: ' \t\n\r\f\v',
  [CLASS.Letter]: 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_',
  [CLASS.Digit]: '0123456789',
  [CLASS.Operator]: '+-*/<>=~!@#%^&|`?',
  [CLASS.Punctuation]: '()[],;',
  [CLASS.Quote]: "'",
  [CLASS.DoubleQuote]: '"',
  [CLASS.Dollar]: '$',
  [CLASS.Colon]: ':',
  [CLASS.Dot]: '.',
});

function classes(members: Record<number, string>): Uint8Array {
  const table = new Uint8Array(128);
  for (const [kind, characters] of Object.entries(members)) {
    for (const character of characters) table[character.charCodeAt(0)] = Number(kind);
  }
  return table;
}

/** 1 for each ASCII character that may continue an unquoted identifier (`ident_cont` in the server's scan.l). */
export const IDENTIFIER_PART = CLASSES.map((kind, code) => (kind === CLASS.Letter || kind === CLASS.Digit || code === Code.Dollar ? 1 : 0));

/** The server takes every character above ASCII for a letter, and so does this. */
export const classOf = (code: number): number => (code < 128 ? (CLASSES[code] ?? CLASS.Unknown) : CLASS.Letter);

/** Folds an identifier as the server does: only `A` to `Z` change, in every locale. */
export function lowerCase(text: string): string {
  for (let at = 0; at < text.length; at++) {
    if (text.charCodeAt(at) >= 0x80) return text.replace(/[A-Z]+/g, (capitals) => capitals.toLowerCase());
  }
  return text.toLowerCase();
}
