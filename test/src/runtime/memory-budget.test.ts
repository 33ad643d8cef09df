import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { MemoryBudget, MemoryReservation } from '../../../src/runtime/memory-budget.ts';

describe('a memory reservation', () => {
  const budget = () => new MemoryBudget({ perOrganizationBytes: 100, allBytes: 200 });

  it('grows within the limits only, unless it has to', () => {
    const all = budget();
    const [some, others] = [new MemoryReservation(all, 'a', 0), new MemoryReservation(all, 'a', 0)];
    expect([some.tryResize(60), some.tryResize(101), some.bytes]).toEqual([undefined, 'its own', 60]);
    expect([others.tryResize(41), others.tryResize(40)]).toEqual(['its own', undefined]);
    some.resize(90);
    expect(others.tryResize(41)).toBe('its own');
    expect(others.tryResize(5)).toBe(undefined);
    expect(others.tryResize(10)).toBe(undefined);
  });

  it('has no more than is left for other organizations', () => {
    const all = budget();
    expect(new MemoryReservation(all, 'a', 0).tryResize(100)).toBe(undefined);
    const other = new MemoryReservation(all, 'b', 0);
    expect([other.tryResize(51), other.tryResize(50)]).toEqual(['all', undefined]);
  });

  it('counts nothing while it is small, and all of it when it is not', () => {
    const all = budget();
    all.count('a', 95);
    const held = new MemoryReservation(all, 'a', 10);
    expect([held.tryResize(10), held.tryResize(11)]).toEqual([undefined, 'its own']);
    held.resize(50);
    expect(all.exhaustedBy('b', 28)).toBe('all');
    held.resize(10);
    expect([held.bytes, all.exhaustedBy('b', 52), all.exhaustedBy('b', 53)]).toEqual([10, undefined, 'all']);
  });

  it('holds nothing once it has ended', async () => {
    const all = budget();
    const held = new MemoryReservation(all, 'a', 0);
    held.resize(100);
    const waited: string[] = [];
    new MemoryReservation(all, 'a', 0).wait(1, () => waited.push('free'));
    held.end();
    held.resize(100);
    expect([held.tryResize(100), held.bytes]).toEqual([undefined, 0]);
    await turn();
    expect(waited).toEqual(['free']);
  });
});
