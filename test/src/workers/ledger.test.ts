import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Ledger } from '../../../src/workers/ledger.ts';

/** A ledger, and what it has asked of workers. */
function ledgerOf(max: number, maxPerTenant: number): { readonly ledger: Ledger; take(): string[] } {
  let said: string[] = [];
  const ledger = new Ledger({
    granted: (worker, organization) => said.push(`${worker} gets ${organization}`),
    reclaim: (worker, request, organization) => said.push(`${worker} closes unused ${organization ?? 'any'} for ${request}`),
    settled: () => {},
    owe: (worker, organization) => said.push(`${worker} owes ${organization ?? 'any'}`),
  });
  ledger.limit({ max, maxPerTenant, reserved: Math.floor(max / 10) });
  return {
    ledger,
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
    const { ledger, take } = ledgerOf(100, 3);
    for (const worker of [1, 2, 1]) ledger.acquire(worker, 'acme');
    expect(take()).toEqual(['1 gets acme', '2 gets acme', '1 gets acme']);
    ledger.acquire(2, 'acme');
    expect(take()).toEqual([]);
    vi.advanceTimersByTime(ASK_EVERY_MS);
    expect(take()).toEqual(['1 closes unused acme for 4']);
    ledger.release(1, 'acme');
    expect(take()).toEqual(['2 gets acme']);
    ledger.acquire(2, 'other');
    expect(take()).toEqual(['2 gets other']);
  });

  it('moves to the worker that has fewer, when no session is unused for a while, until both have as many', () => {
    const { ledger, take } = ledgerOf(100, 4);
    for (let n = 0; n < 4; n += 1) ledger.acquire(1, 'acme');
    take();
    for (let n = 0; n < 4; n += 1) ledger.acquire(2, 'acme');
    expect(take()).toEqual([5, 6, 7, 8].map((request) => `1 closes unused acme for ${request}`));
    for (const request of [5, 6, 7, 8]) ledger.kept(request);
    expect(take()).toEqual([]);
    vi.advanceTimersByTime(ASK_EVERY_MS);
    take();
    for (const request of [5, 6, 7, 8]) ledger.kept(request);
    expect(take()).toEqual(['1 owes acme', '1 owes acme']);
    ledger.release(1, 'acme');
    ledger.release(1, 'acme');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets acme', '2 gets acme']);
  });

  it('is asked of every other worker', () => {
    const { ledger, take } = ledgerOf(100, 3);
    for (const worker of [1, 2, 2]) ledger.acquire(worker, 'acme');
    take();
    ledger.acquire(3, 'acme');
    expect(take()).toEqual(['2 closes unused acme for 4']);
    ledger.kept(4);
    expect(take()).toEqual(['1 closes unused acme for 4']);
    ledger.release(1, 'acme');
    expect(take()).toEqual(['3 gets acme']);
  });

  it('is not asked for what is not needed any more', () => {
    const { ledger, take } = ledgerOf(100, 1);
    ledger.acquire(1, 'acme');
    ledger.acquire(2, 'acme');
    ledger.withdraw(2, 'acme');
    take();
    ledger.release(1, 'acme');
    vi.advanceTimersByTime(ASK_EVERY_MS);
    expect(take()).toEqual([]);
  });
});

describe('the limit of all', () => {
  it('leaves the last tenth to organizations that have none', () => {
    const { ledger, take } = ledgerOf(10, 10);
    for (let n = 0; n < 10; n += 1) ledger.acquire(1, 'large');
    expect(take().filter((one) => one.includes('gets'))).toHaveLength(9);
    ledger.acquire(2, 'small');
    expect(take()).toContain('2 gets small');
  });

  it('is given to the organization with the fewest first', () => {
    const { ledger, take } = ledgerOf(4, 4);
    for (let n = 0; n < 3; n += 1) ledger.acquire(1, 'large');
    ledger.acquire(1, 'small');
    take();
    ledger.acquire(1, 'large');
    ledger.acquire(2, 'small');
    ledger.release(1, 'large');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets small']);
  });
});

describe('an organization that has none', () => {
  it('asks for unused sessions, however many wait for sessions of an organization at its limit', () => {
    const { ledger, take } = ledgerOf(4, 2);
    for (const organization of ['busy', 'busy', 'quiet', 'quiet']) ledger.acquire(1, organization);
    for (let n = 0; n < 40; n += 1) ledger.acquire(2 + (n % 3), 'busy');
    take();
    ledger.acquire(2, 'new');
    expect(take()).toEqual(['1 closes unused any for 45']);
    ledger.release(1, 'quiet');
    expect(take().filter((one) => one.includes('gets'))).toEqual(['2 gets new']);
  });

  it('asks before those that wait for more', () => {
    const { ledger, take } = ledgerOf(4, 4);
    for (const organization of ['busy', 'busy', 'busy', 'quiet']) ledger.acquire(1, organization);
    for (let n = 0; n < 40; n += 1) ledger.acquire(2, 'busy');
    take();
    ledger.acquire(2, 'new');
    expect(take()).toEqual(['1 closes unused any for 45']);
  });

  it('gets one of those of another, though it waits at the worker that has them all', () => {
    const { ledger, take } = ledgerOf(4, 4);
    for (const organization of ['busy', 'busy', 'busy', 'quiet']) ledger.acquire(1, organization);
    ledger.acquire(1, 'new');
    for (let n = 0; n < 3; n += 1) {
      ledger.kept(5);
      vi.advanceTimersByTime(ASK_EVERY_MS);
    }
    expect(take().filter((one) => one.includes('owes'))).toEqual(['1 owes busy']);
    ledger.release(1, 'busy');
    expect(take()).toContain('1 gets new');
  });
});

it('workers that have as many leave each other what they use', () => {
  const { ledger, take } = ledgerOf(100, 4);
  for (const worker of [1, 1, 2, 2]) ledger.acquire(worker, 'acme');
  take();
  ledger.acquire(1, 'acme');
  ledger.acquire(2, 'acme');
  vi.advanceTimersByTime(ASK_EVERY_MS);
  expect(take()).toEqual(['2 closes unused acme for 5', '1 closes unused acme for 6']);
  for (const request of [5, 6]) ledger.kept(request);
  expect(take().filter((one) => one.includes('owes'))).toEqual([]);
});

it('a worker that ends leaves what it had, and does not wait any more', () => {
  const { ledger, take } = ledgerOf(100, 2);
  for (const worker of [1, 1]) ledger.acquire(worker, 'acme');
  ledger.acquire(2, 'acme');
  ledger.acquire(3, 'acme');
  take();
  ledger.forget(2);
  ledger.forget(1);
  expect(take()).toEqual(['3 gets acme']);
});

it('what was never granted cannot be returned', () => {
  const { ledger, take } = ledgerOf(100, 1);
  ledger.release(1, 'acme');
  ledger.acquire(1, 'acme');
  ledger.acquire(2, 'acme');
  expect(take()).toEqual(['1 gets acme', '1 closes unused acme for 2']);
});
