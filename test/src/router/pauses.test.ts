import { beforeEach, expect, it, vi } from 'vitest';
import { UNTIL_ENDED_MS } from '../../../src/catalog/pauses.ts';
import { Pauses } from '../../../src/router/pauses.ts';

const DAY_MS = 86_400_000;

let pauses: Pauses;
beforeEach(() => {
  vi.useFakeTimers();
  pauses = new Pauses();
});

it('a pause ends by itself after its time', () => {
  const resume = vi.fn();
  expect(pauses.set('acme', DAY_MS)).toBe(true);
  expect(pauses.add('acme', { resume })).toBe(true);
  vi.advanceTimersByTime(DAY_MS - 1);
  expect(pauses.isPaused('acme')).toBe(true);
  vi.advanceTimersByTime(1);
  expect([pauses.isPaused('acme'), pauses.count, resume.mock.calls.length]).toEqual([false, 0, 1]);
});

it('a pause without an end lasts until it is ended', () => {
  const resume = vi.fn();
  pauses.set('acme', UNTIL_ENDED_MS);
  pauses.add('acme', { resume });
  vi.advanceTimersByTime(100 * DAY_MS);
  expect(pauses.isPaused('acme')).toBe(true);
  pauses.end('acme');
  expect([pauses.isPaused('acme'), pauses.count, resume.mock.calls.length]).toEqual([false, 0, 1]);
});

it('a pause may get another end, and lose it', () => {
  pauses.set('acme', 1_000);
  expect(pauses.set('acme', UNTIL_ENDED_MS)).toBe(false);
  vi.advanceTimersByTime(2_000);
  expect(pauses.isPaused('acme')).toBe(true);
  pauses.set('acme', 1_000);
  vi.advanceTimersByTime(1_000);
  expect(pauses.isPaused('acme')).toBe(false);
});
