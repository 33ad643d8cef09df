import { expect } from 'vitest';
import type { Answer } from './attack.ts';
import type { Reply } from './doors.ts';
import { TRACES } from './scene.ts';

/** Whether a door's reply is as it must be; in any case it shows nothing of what is in the victim's rows. */
export function check(door: string, { sqlstate, rows, whole, message }: Reply, expected: Answer): void {
  expect(whole, door).not.toMatch(TRACES);
  if ('refused' in expected) {
    expect([door, sqlstate, message]).toEqual([door, expected.refused, expect.any(String)]);
  } else if ('names' in expected) {
    expect([door, sqlstate, whole]).toEqual([door, '00000', expect.stringContaining(expected.names)]);
  } else {
    expect([door, sqlstate, rows]).toEqual([door, '00000', expected.shows]);
  }
}
