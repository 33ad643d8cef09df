import { expect, it } from 'vitest';
import { deallocatedNames } from '../../../src/syntax/session-traits.ts';

it.each([
  ['deallocate s1; DEALLOCATE PREPARE "S ""1"""; deallocate S2', ['s1', 'S "1"', 's2']],
  ['/* a */ deallocate /* b */ prepare -- c\n s1 -- d', ['s1']],
  ['select 1; ;deallocate s1', ['s1']],
  ['deallocate Gr\u00c3\u00b6\u00c3\u009fE', ['gr\u00c3\u00b6\u00c3\u009fe']],
  ['deallocate prepare', ['prepare']],
  ['deallocate prepare; deallocate prepare prepare', ['prepare', 'prepare']],
  ['deallocate "all"; deallocate prepare "prepare"', ['all', 'prepare']],
])('the names in %j are found', (text, names) => {
  expect(deallocatedNames(text)).toEqual(names);
});

it.each([
  'deallocate all; DEALLOCATE PREPARE ALL',
  "insert into log values ('deallocate s1') -- deallocate s1",
  'select 1 as "deallocate s1"',
  'select deallocate s1',
  'select $$; deallocate s1$$',
  'deallocate',
  'deallocate; s1',
])('there is no name in %j', (text) => {
  expect(deallocatedNames(text)).toEqual([]);
});
