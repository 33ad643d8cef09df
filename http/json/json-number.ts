export const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;

/** Digits and `.`, `e`, `E`, `+`, `-`. */
export const isNumberByte = (byte: number) =>
  isDigit(byte) || byte === 0x2e || byte === 0x65 || byte === 0x45 || byte === 0x2b || byte === 0x2d;

/** More digits than the exponents of doubles reach, before the point and behind it. */
const LONG_CHARACTERS = 700;

/** A double keeps 15 significant digits of any number in its range, and all that a program has written of one itself. */
export function changesAsDouble(literal: string): boolean {
  // No double is written like that, and a long number is long in being read.
  if (literal.length > LONG_CHARACTERS) return true;
  const value = Number(literal);
  if (String(value) === literal) return false;
  if (!Number.isFinite(value)) return true;
  const mantissa = literal.replace(/[eE].*$/, '');
  const digits = mantissa.replace(/^-?[0.]*/, '').replace('.', '');
  return digits.length > 15 || (value === 0 && digits !== '');
}
