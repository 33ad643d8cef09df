import { describe, expect, it } from 'vitest';
import { changeCode } from '../../proxy/sql-code.ts';
import { replaceDeallocated } from '../../proxy/statement-text.ts';

describe('a change to the code in an SQL text', () => {
  const shout = (text: string) =>
    changeCode(
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
  const renamed = (text: string) => replaceDeallocated(text, (name) => (name === 's1' ? 'x1' : undefined));

  it('has its name changed, however it is written', () => {
    expect(renamed('deallocate s1; DEALLOCATE PREPARE "s1"; deallocate S1')).toBe(
      'deallocate "x1"; DEALLOCATE PREPARE "x1"; deallocate "x1"',
    );
    expect(renamed('deallocate all; deallocate other; deallocate "S1"')).toBe('deallocate all; deallocate other; deallocate "S1"');
  });

  it('is left alone in strings and comments', () => {
    expect(renamed("insert into log values ('deallocate s1') -- deallocate s1")).toBe(
      "insert into log values ('deallocate s1') -- deallocate s1",
    );
  });
});
