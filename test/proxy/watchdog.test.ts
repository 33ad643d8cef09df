import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Watchdog, type WatchedSession } from '../../proxy/open-sessions.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const LIMITS = { statementTimeoutMs: 10_000, idleInTransactionTimeoutMs: 20_000 };

/** A session at rest but for what is said, under watch. @returns what is done to it */
function watched(state: Partial<WatchedSession>): readonly string[] {
  const did: string[] = [];
  const now = performance.now();
  const atRest: WatchedSession = {
    index: -1,
    unsent: 0,
    taken: 0,
    halfClosed: false,
    since: now,
    activity: 'idle',
    ownStatementMs: null,
    completions: 0,
    idleSessionMs: 0,
    abandon: () => did.push('abandon'),
    stop: () => did.push('stop'),
    end: ({ kind }) => did.push(`end ${kind}`),
    terminate: ({ kind }) => did.push(`terminate ${kind}`),
  };
  // Getters remain what they are.
  const session = Object.defineProperties(atRest, Object.getOwnPropertyDescriptors(state));
  const watchdog = new Watchdog(LIMITS);
  watchdog.watch(session);
  onTestFinished(() => watchdog.forget(session));
  return did;
}

describe('a session that', () => {
  it.each([
    ['is idle in no transaction', {}, 3_600_000, undefined],
    ['is idle in a transaction', { activity: 'idle in transaction' }, 19_000, undefined],
    ['has been idle in a transaction for too long', { activity: 'idle in transaction' }, 21_000, 'end idle_in_transaction_timeout'],
    ['runs a statement', { activity: 'active' }, 9_000, undefined],
    ['runs one for too long', { activity: 'active' }, 11_000, 'stop'],
    ['runs one for longer than its own limit', { activity: 'active', ownStatementMs: 3_000 }, 3_500, 'stop'],
    ['runs one within its own limit', { activity: 'active', ownStatementMs: 60_000 }, 11_000, undefined],
    ['runs one, and may take as long as it likes', { activity: 'active', ownStatementMs: 0 }, 3_600_000, undefined],
    ['may be idle for a minute', { idleSessionMs: 60_000 }, 59_000, undefined],
    ['has been idle for longer than that', { idleSessionMs: 60_000 }, 61_000, 'end idle_session_timeout'],
    ['may be idle for a minute, and waits in a transaction', { activity: 'idle in transaction', idleSessionMs: 1_000 }, 19_000, undefined],
    ['takes nothing of a long answer', { activity: 'active', unsent: 1_000 }, 9_000, undefined],
    ['takes nothing for a minute', { unsent: 1_000 }, 61_000, 'abandon'],
    ['listens, and has taken all that there was', { unsent: 0 }, 61_000, undefined],
    ['has closed its side', { activity: 'active', halfClosed: true }, 900, undefined],
    ['has closed its side, and gets nothing any more', { activity: 'active', halfClosed: true }, 1_500, 'abandon'],
  ] as const)('%s', async (_what, state, ms, outcome) => {
    const did = watched(state);
    await vi.advanceTimersByTimeAsync(ms);
    expect(did[0]).toBe(outcome);
  });

  it('runs many statements that were sent together may take as long as it needs, if each of them is short', async () => {
    const start = performance.now();
    const did = watched({
      activity: 'active',
      get completions() {
        return Math.min(Math.floor((performance.now() - start) / 8_000), 5);
      },
    });
    await vi.advanceTimersByTimeAsync(49_000);
    expect(did).toEqual([]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(did[0]).toBe('stop');
  });

  it('takes some of a long answer every now and then may take as long as it needs', async () => {
    const start = performance.now();
    const did = watched({
      unsent: 1_000,
      get taken() {
        return Math.floor((performance.now() - start) / 50_000);
      },
    });
    await vi.advanceTimersByTimeAsync(600_000);
    expect(did).toEqual([]);
  });

  it('takes nothing more of an answer is left alone until a minute after it took the last', async () => {
    const start = performance.now();
    const did = watched({
      unsent: 1_000,
      get taken() {
        return Math.min(performance.now() - start, 50_000);
      },
    });
    await vi.advanceTimersByTimeAsync(109_000);
    expect(did).toEqual([]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(did[0]).toBe('abandon');
  });

  it('has closed its side may go on taking its answer', async () => {
    const start = performance.now();
    const did = watched({
      activity: 'active',
      halfClosed: true,
      unsent: 1_000,
      get taken() {
        return Math.floor((performance.now() - start) / 900);
      },
    });
    await vi.advanceTimersByTimeAsync(9_500);
    expect(did).toEqual([]);
  });

  it('obeys no cancel request loses its backend', async () => {
    const did = watched({ activity: 'active' });
    await vi.advanceTimersByTimeAsync(14_000);
    expect(did).toEqual(['stop']);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(did[1]).toBe('terminate statement_timeout');
  });
});
