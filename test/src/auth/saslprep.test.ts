import { expect, test } from 'vitest';
import { saslprep } from '../../../src/auth/scram.ts';

test.each([
  // The examples of RFC 4013, section 3.
  ['soft hyphen is mapped to nothing', 'I\u00ADX', 'IX'],
  ['no transformation', 'user', 'user'],
  ['case is preserved', 'USER', 'USER'],
  ['output is NFKC', '\u00AA', 'a'],
  ['output is NFKC', '\u2168', 'IX'],
  ['prohibited beside ASCII stays as it is', '\u0007', '\u0007'],
  ['right-to-left that ends in a digit stays as it is', '\u0627\u0031\u00AA', '\u0627\u0031\u00AA'],
  // And what Postgres does besides.
  ['spaces become one kind', 'a\u00A0b\u3000c', 'a b c'],
  ['nothing left stays as it is', '\u00AD', '\u00AD'],
  ['prohibited stays as it is', '\u00AA\u0085', '\u00AA\u0085'],
  ['half a surrogate pair stays as it is', '\u00AA\uD800', '\u00AA\uD800'],
  ['unassigned stays as it is', '\u00AA\u0378', '\u00AA\u0378'],
  ['right-to-left alone', '\u0627\u00AD\u0628', '\u0627\u0628'],
  ['both directions stay as they are', '\u0627\u00ADa\u0628', '\u0627\u00ADa\u0628'],
])('%s: %j', (_, password, prepared) => {
  expect(saslprep(password)).toBe(prepared);
});
