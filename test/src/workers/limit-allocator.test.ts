import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LimitAllocator } from '../../../src/workers/limits.ts';

/** An allocator, and what it has asked of workers. */
function allocatorOf(max: number, maxPerTenant: number): { readonly allocator: LimitAllocator; take(): string[] } {
  let said: string[] = [];
  const allocator = new LimitAllocator({
    granted: (worker, organization) => said.push(`${worker} gets ${organization}`),
    reclaim: (worker, request, organization) => said.push(`${worker} closes unused ${organization ?? 'any'} for ${request}`),
    settled: () => {},
    owe: (worker, organization) => said.push(`${worker} owes ${organization ?? 'any'}`),
  });
  allocator.limit({ max, maxPerTenant, reserved: Math.floor(max / 10) });
  return {
    allocator,
    take: () => {
      const taken = said;
      said = [];
      return taken;
    },
  };
}

const ASK_EVERY_MS = 50;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('the limit of an organization', () => {
  it('is that of all workers together', () => {
    const { allocator, take } = allocatorOf(100, 3);
    for (const worker of [1, 2, 1]) allocator.acquire(worker, 'acme');
    expect(take()).toEqual(['1 gets acme', '2 gets acme', '1 gets acme']);
    allocator.acquire(2, 'acme');
    expect(take()).toEqual([]);
    vi.advanceTimersByTime(ASK_EVERY_MS);
    expect(take()).toEqual(['1 closes unused acme for 4']);
    allocator.release(1, 'acme');
    expect(take()).toEqual(['2 gets acme']);
    allocator.acquire(2, 'other');
    expect(take()).toEqual(['2 gets other']);
  });

  it('moves to the worker that has fewer, when no session is unused for a while, until both have as many', () => {
    const { allocator, take } = allocatorOf(100, 4);
    for (let n = 0; n < 4; n += 1) allocator.acquire(1, 'acme');
    take();
    for (let n = 0; n < 4; n += 1) allocator.acquire(2, 'acme');
    expect(take()).toEqual([5, 6, 7, 8].map((request) => `1 closes unused acme for ${request}`));
    for (const request of [5, 6, 7, 8]) allocator.kept(request);
    expect(take()).toEqual([]);
    vi.advanceTimersByTime(ASK_EVERY_MS);
    take();
    for (const request of [5, 6, 7, 8]) allocator.kept(request);
    expect(take()).toEqual(['1 owes acme', '1 owes acme']);
    allocator.release(1, 'acme');
    allocator.release(1, 'acme');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets acme', '2 gets acme']);
  });

  it('is asked of every other worker', () => {
    const { allocator, take } = allocatorOf(100, 3);
    for (const worker of [1, 2, 2]) allocator.acquire(worker, 'acme');
    take();
    allocator.acquire(3, 'acme');
    expect(take()).toEqual(['2 closes unused acme for 4']);
    allocator.kept(4);
    expect(take()).toEqual(['1 closes unused acme for 4']);
    allocator.release(1, 'acme');
    expect(take()).toEqual(['3 gets acme']);
  });

  it('is not asked for what is not needed any more', () => {
    const { allocator, take } = allocatorOf(100, 1);
    allocator.acquire(1, 'acme');
    allocator.acquire(2, 'acme');
    allocator.withdraw(2, 'acme');
    take();
    allocator.release(1, 'acme');
    vi.advanceTimersByTime(ASK_EVERY_MS);
    expect(take()).toEqual([]);
  });
});

describe('the limit of all', () => {
  it('leaves the last tenth to organizations that have none', () => {
    const { allocator, take } = allocatorOf(10, 10);
    for (let n = 0; n < 10; n += 1) allocator.acquire(1, 'large');
    expect(take().filter((one) => one.includes('gets'))).toHaveLength(9);
    allocator.acquire(2, 'small');
    expect(take()).toContain('2 gets small');
  });

  it('is given to the organization with the fewest first', () => {
    const { allocator, take } = allocatorOf(4, 4);
    for (let n = 0; n < 3; n += 1) allocator.acquire(1, 'large');
    allocator.acquire(1, 'small');
    take();
    allocator.acquire(1, 'large');
    allocator.acquire(2, 'small');
    allocator.release(1, 'large');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets small']);
  });
});

describe('an organization that has none', () => {
  it('asks for unused sessions, however many wait for sessions of an organization at its limit', () => {
    const { allocator, take } = allocatorOf(4, 2);
    for (const organization of ['busy', 'busy', 'quiet', 'quiet']) allocator.acquire(1, organization);
    for (let n = 0; n < 40; n += 1) allocator.acquire(2 + (n % 3), 'busy');
    take();
    allocator.acquire(2, 'new');
    expect(take()).toEqual(['1 closes unused any for 45']);
    allocator.release(1, 'quiet');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets new']);
  });

  it('asks before those that wait for more', () => {
    const { allocator, take } = allocatorOf(4, 4);
    for (const organization of ['busy', 'busy', 'busy', 'quiet']) allocator.acquire(1, organization);
    for (let n = 0; n < 40; n += 1) allocator.acquire(2, 'busy');
    take();
    allocator.acquire(2, 'new');
    expect(take()).toEqual(['1 closes unused any for 45']);
  });

  it('gets one of those of another, though it waits at the worker that has them all', () => {
    const { allocator, take } = allocatorOf(4, 4);
    for (const organization of ['busy', 'busy', 'busy', 'quiet']) allocator.acquire(1, organization);
    allocator.acquire(1, 'new');
    for (let n = 0; n < 3; n += 1) {
      allocator.kept(5);
      vi.advanceTimersByTime(ASK_EVERY_MS);
    }
    expect(take().filter((one) => one.includes('owes'))).toEqual(['1 owes busy']);
    allocator.release(1, 'busy');
    expect(take()).toContain('1 gets new');
  });
});

it('workers that have as many leave each other what they use', () => {
  const { allocator, take } = allocatorOf(100, 4);
  for (const worker of [1, 1, 2, 2]) allocator.acquire(worker, 'acme');
  take();
  allocator.acquire(1, 'acme');
  allocator.acquire(2, 'acme');
  vi.advanceTimersByTime(ASK_EVERY_MS);
  expect(take()).toEqual(['2 closes unused acme for 5', '1 closes unused acme for 6']);
  for (const request of [5, 6]) allocator.kept(request);
  expect(take().filter((one) => one.includes('owes'))).toEqual([]);
});

it('a worker that ends leaves what it had, and does not wait any more', () => {
  const { allocator, take } = allocatorOf(100, 2);
  for (const worker of [1, 1]) allocator.acquire(worker, 'acme');
  allocator.acquire(2, 'acme');
  allocator.acquire(3, 'acme');
  take();
  allocator.forget(2);
  allocator.forget(1);
  expect(take()).toEqual(['3 gets acme']);
});

it('what was never granted cannot be returned', () => {
  const { allocator, take } = allocatorOf(100, 1);
  allocator.release(1, 'acme');
  allocator.acquire(1, 'acme');
  allocator.acquire(2, 'acme');
  expect(take()).toEqual(['1 gets acme', '1 closes unused acme for 2']);
});
