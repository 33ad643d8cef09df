/** A longer text is no misspelling of anything. */
export const WORD_MAX_CHARACTERS = 100;

/** @returns the candidate that is probably meant by a word; undefined: none is like it, or it is too long to be a misspelling */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  if (word.length > WORD_MAX_CHARACTERS) return undefined;
  const plain = simplified(word);
  const furthest = plain.length < 4 ? 0 : plain.length < 8 ? 1 : 2;
  let found: string | undefined;
  let least = furthest + 1;
  for (const candidate of candidates) {
    const other = simplified(candidate);
    if (Math.abs(other.length - plain.length) >= least) continue;
    const distance = editDistance(plain, other);
    if (distance < least) [found, least] = [candidate, distance];
  }
  return found;
}

/** `time_out_ms`, `timeout-ms` and `timeoutMs` are the same. */
export function simplified(word: string): string {
  return word.toLowerCase().replace(/[_-]|\/+$/g, '');
}

/** How many characters have to be put in, taken out, replaced, or swapped with the next. */
function editDistance(a: string, b: string): number {
  let [before, above]: [number[], number[]] = [[], Array.from({ length: b.length + 1 }, (_, i) => i)];
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const changed = (above[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwap ? (before[j - 2] ?? 0) + 1 : changed;
      row.push(Math.min(changed, swapped, (above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    [before, above] = [above, row];
  }
  return above[b.length] ?? 0;
}
