import { describe, expect, it } from 'vitest';
import { replaceOutsideLiterals } from '../../../src/syntax/replace-outside-literals.ts';
import { deallocatedNames } from '../../../src/syntax/traits/session-traits.ts';

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

describe('DEALLOCATE', () => {
  it('has its name found, however it is written', () => {
    expect(deallocatedNames('deallocate s1; DEALLOCATE PREPARE "S ""1"""; deallocate S2')).toEqual(['s1', 'S "1"', 's2']);
    expect(deallocatedNames('deallocate all; DEALLOCATE PREPARE ALL')).toEqual([]);
  });

  it('is not found in strings and comments', () => {
    expect(deallocatedNames("insert into log values ('deallocate s1') -- deallocate s1")).toEqual([]);
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
