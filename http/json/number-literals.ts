export const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;

/** Digits and `.`, `e`, `E`, `+`, `-`. */
export const isNumberByte = (byte: number) =>
  isDigit(byte) || byte === 0x2e || byte === 0x65 || byte === 0x45 || byte === 0x2b || byte === 0x2d;

/** More digits than doubles can have, before and after the point. */
const LONG_CHARACTERS = 700;

/** A double keeps 15 significant digits of any number in its range, and all digits that a program has printed of a double. */
export function changesAsDouble(literal: string): boolean {
  // No program prints a double like that, and parsing a long number takes long.
  if (literal.length > LONG_CHARACTERS) return true;
  const value = Number(literal);
  if (String(value) === literal) return false;
  if (!Number.isFinite(value)) return true;
  const mantissa = literal.replace(/[eE].*$/, '');
  const digits = mantissa.replace(/^-?[0.]*/, '').replace('.', '');
  return digits.length > 15 || (value === 0 && digits !== '');
}
