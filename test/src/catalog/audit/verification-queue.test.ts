import { describe, expect, test } from 'vitest';
import { type AuditVerification, VerificationQueue } from '../../../../src/catalog/audit/verification.ts';

const answer = (count: number): AuditVerification => ({ ok: true, count, headSeq: count, headHash: '' });

/** Verifications that end when the test says so. */
function makeQueue() {
  const begun: string[] = [];
  const signals: AbortSignal[] = [];
  let end: (verification: AuditVerification | Error) => void = () => {};
  const queue = new VerificationQueue((organizationId, signal) => {
    begun.push(organizationId);
    signals.push(signal);
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
      end = (verification) => (verification instanceof Error ? reject(verification) : resolve(verification));
    });
  });
  return {
    queue,
    begun,
    signals,
    /** Ends the one that begins as the `nth`. */
    end: async (nth: number, verification: AuditVerification | Error) => {
      await expect.poll(() => begun.length).toBe(nth);
      end(verification);
    },
  };
}

describe('verifications of audit logs', () => {
  test('one waits for each organization, and later callers share its answer', async () => {
    const { queue, begun, end } = makeQueue();
    const first = queue.request('a');
    const later = Array.from({ length: 200 }, () => queue.request('a'));
    await end(1, answer(1));
    // What was asked for after a verification began is not answered by it: it does not know what was written since.
    expect(await first).toEqual(answer(1));
    await end(2, answer(2));
    expect(new Set(await Promise.all(later))).toEqual(new Set([answer(2)]));
    expect(begun).toEqual(['a', 'a']);
  });

  test('organizations have their turns', async () => {
    const { queue, begun, end } = makeQueue();
    const asked = ['a', 'a', 'b', 'a', 'c', 'b'].map((id) => queue.request(id));
    await end(1, answer(1));
    await expect.poll(() => begun.length).toBe(2);
    const again = queue.request('a');
    for (const nth of [2, 3, 4, 5]) await end(nth, answer(nth));
    expect(await Promise.all([...asked, again])).toEqual([1, 2, 3, 2, 4, 3, 5].map(answer));
    expect(begun).toEqual(['a', 'a', 'b', 'c', 'a']);
  });

  test('all who share a verification get its error, and the next one runs', async () => {
    const { queue, end } = makeQueue();
    const [first, second] = [queue.request('a'), queue.request('b')];
    const told = expect(first).rejects.toThrow('lost');
    await end(1, new Error('lost'));
    await told;
    await end(2, answer(1));
    expect(await second).toEqual(answer(1));
  });

  test('it is canceled when all who share it have disconnected, before it begins or later', async () => {
    const { queue, begun, signals, end } = makeQueue();
    const callers = [0, 1, 2, 3].map(() => new AbortController());
    const canceled = { kind: 'query_canceled' };
    const running = expect(queue.request('a', callers[0]?.signal)).rejects.toMatchObject(canceled);
    const shared = [1, 2].map((n) => expect(queue.request('b', callers[n]?.signal)).rejects.toMatchObject(canceled));
    const last = expect(queue.request('c', callers[3]?.signal)).rejects.toMatchObject(canceled);
    callers[1]?.abort();
    callers[2]?.abort();
    await Promise.all(shared);
    const anew = queue.request('b');
    expect(signals[0]?.aborted).toBe(false);
    callers[0]?.abort();
    await running;
    await end(2, answer(1));
    expect(await anew).toEqual(answer(1));
    callers[3]?.abort();
    await last;
    await expect(queue.request('d', AbortSignal.abort())).rejects.toMatchObject(canceled);
    expect(begun).toEqual(['a', 'b', 'c']);
  });

  test('it continues while one of them is connected', async () => {
    const { queue, end } = makeQueue();
    const [goes, stays] = [new AbortController(), new AbortController()];
    const before = queue.request('b');
    const shared = [queue.request('a', goes.signal), queue.request('a', stays.signal)];
    goes.abort();
    await end(1, answer(1));
    await end(2, answer(2));
    expect(await Promise.all([before, ...shared])).toEqual([answer(1), answer(2), answer(2)]);
  });
});
