import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { BusyPoll } from '../../../src/backend/connection.ts';

/** Many turns of the faked loop, each of which takes a millisecond. */
const MAX_MS = 100;
const FEW_TURNS_MS = 3;
const CALM_REQUESTS = 100;

let poll: BusyPoll;
beforeEach(() => {
  vi.useFakeTimers();
  poll = new BusyPoll(MAX_MS, 2);
});
afterEach(() => {
  vi.useRealTimers();
});

/** Whether the loop is kept awake: an immediate is due. */
function isAwake(): boolean {
  return vi.getTimerCount() > 0;
}

function roundTrips(count: number): void {
  for (let i = 0; i < count; i += 1) {
    poll.asked();
    poll.answered();
  }
}

describe('a client by itself', () => {
  it('finds the loop awake once that has been so for a while', () => {
    roundTrips(CALM_REQUESTS - 1);
    expect(isAwake()).toBe(false);
    poll.asked();
    expect(isAwake()).toBe(true);
  });

  it('is waited for after its answer, until that has taken too long', () => {
    roundTrips(CALM_REQUESTS);
    vi.advanceTimersByTime(MAX_MS / 2);
    expect(isAwake()).toBe(true);
    vi.advanceTimersByTime(MAX_MS);
    expect(isAwake()).toBe(false);
  });

  it('is not waited for if it let it wait the last time, but its next answer is', () => {
    roundTrips(CALM_REQUESTS);
    vi.advanceTimersByTime(MAX_MS * 3);
    poll.asked();
    expect(isAwake()).toBe(true);
    poll.answered();
    vi.advanceTimersByTime(FEW_TURNS_MS);
    expect(isAwake()).toBe(false);
    poll.asked();
    poll.answered();
    expect(isAwake()).toBe(true);
  });

  it('whose answer took too long is not polled for the next time, and only then', () => {
    roundTrips(CALM_REQUESTS);
    poll.asked();
    vi.advanceTimersByTime(MAX_MS * 3);
    expect(isAwake()).toBe(false);
    poll.answered();
    vi.advanceTimersByTime(MAX_MS * 3);
    poll.asked();
    expect(isAwake()).toBe(false);
    vi.advanceTimersByTime(MAX_MS / 2);
    poll.answered();
    vi.advanceTimersByTime(MAX_MS * 3);
    poll.asked();
    expect(isAwake()).toBe(true);
  });
});

describe('several clients', () => {
  it('get the processors for their sessions, and the loop sleeps', () => {
    roundTrips(CALM_REQUESTS);
    poll.asked();
    poll.asked();
    vi.advanceTimersByTime(FEW_TURNS_MS);
    expect(isAwake()).toBe(false);
    poll.answered();
    poll.answered();
    roundTrips(CALM_REQUESTS - 1);
    expect(isAwake()).toBe(false);
    roundTrips(1);
    expect(isAwake()).toBe(true);
  });

  it('are noticed when they share a session', () => {
    roundTrips(CALM_REQUESTS);
    poll.asked();
    poll.contended();
    vi.advanceTimersByTime(FEW_TURNS_MS);
    expect(isAwake()).toBe(false);
  });

  it('have the loop awake where there are more processors', () => {
    poll = new BusyPoll(MAX_MS, 4);
    roundTrips(CALM_REQUESTS);
    for (let i = 0; i < 3; i += 1) poll.asked();
    vi.advanceTimersByTime(FEW_TURNS_MS);
    expect(isAwake()).toBe(true);
    poll.asked();
    vi.advanceTimersByTime(FEW_TURNS_MS);
    expect(isAwake()).toBe(false);
  });
});

it('the only processor is left to PostgreSQL', () => {
  poll = new BusyPoll(MAX_MS, 1);
  roundTrips(2 * CALM_REQUESTS);
  poll.asked();
  expect(isAwake()).toBe(false);
});
