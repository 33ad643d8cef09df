import { describe, expect, it } from 'vitest';
import { replaceOutsideLiterals } from '../../../src/syntax/redaction.ts';

describe('a change to the code in an SQL text', () => {
  const shout = (text: string) =>
    replaceOutsideLiterals(
      text,
      (code) => code.toUpperCase(),
      () => false,
    );

  it.each([
    ['select a', 'SELECT A'],
    ["select 'a', e'\\'a', $$a$$, $a$ a $a$, b", "SELECT 'a', e'\\'a', $$a$$, $a$ a $a$, B"],
    ['select "a"."b""c", d -- a', 'SELECT "a"."b""c", D -- a'],
    ['/* a /* a */ a */ select\n\ta ', '/* a /* a */ a */ SELECT\n\tA '],
    ["select 'never closed", "SELECT 'never closed"],
    ['', ''],
  ])('%j', (text, changed) => {
    expect(shout(text)).toBe(changed);
  });
});

it('leaves alone what is behind more tokens than it looks at', () => {
  const many = "a 'b' ".repeat(20_000);
  expect(
    replaceOutsideLiterals(
      `pid ${many} pid`,
      (code) => code.replaceAll('pid', 'id'),
      () => false,
    ),
  ).toBe(`id ${many} pid`);
});
