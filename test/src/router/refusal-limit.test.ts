import { expect, it } from 'vitest';
import type { Observation } from '../../../src/observation.ts';
import { RefusalLimit } from '../../../src/router/refusal-limit.ts';

function limitOf(perMinute: number) {
  const told: Observation[] = [];
  const clock = { now: 0 };
  const limit = new RefusalLimit({ perMinute, observe: (observation) => told.push(observation), now: () => clock.now });
  const isHeld = (address: string) => limit.count(address) !== undefined;
  return { limit, clock, told, isHeld };
}

it('an address has so many at once, and again in the course of a minute', () => {
  const { limit, clock, isHeld } = limitOf(6);
  expect(Array.from({ length: 8 }, () => isHeld('192.0.2.1'))).toEqual([...Array(6).fill(false), true, true]);
  expect(limit.count('192.0.2.1')).toMatchObject({ kind: 'rate_limited', retryAfterS: 10 });
  clock.now = 10_000;
  expect([isHeld('192.0.2.1'), isHeld('192.0.2.1')]).toEqual([false, true]);
  clock.now = 300_000;
  expect(Array.from({ length: 7 }, () => isHeld('192.0.2.1'))).toEqual([...Array(6).fill(false), true]);
});

it('others have their own, but for those of one IPv6 /64', () => {
  const { isHeld } = limitOf(1);
  expect(['192.0.2.1', '192.0.2.2', '2001:db8::1', '2001:db8:0:1::1'].map(isHeld)).toEqual([false, false, false, false]);
  expect(['192.0.2.1', '::ffff:192.0.2.2', '2001:db8::ffff', '2001:db8:0:1::2'].map(isHeld)).toEqual([true, true, true, true]);
});

it('the operator is told once a minute', () => {
  const { clock, told, isHeld } = limitOf(1);
  for (const now of [0, 0, 0, 100, 59_999, 60_000, 60_001]) {
    clock.now = now;
    isHeld('192.0.2.1');
    isHeld('192.0.2.2');
  }
  expect(told).toHaveLength(2);
  expect(told[0]).toMatchObject({ name: 'service.warning', message: expect.stringMatching(/^192\.0\.2\.1 has been refused more often/) });
});

it('remembers no more than so many addresses', () => {
  const { isHeld } = limitOf(1);
  for (let n = 0; n < 20_000; n++) isHeld(`10.0.${n >> 8}.${n & 255}`);
  expect([isHeld('10.0.0.1'), isHeld('10.0.78.1')]).toEqual([false, true]);
});
