import { describe, expect, it } from 'vitest';
import { Disposition, ReplyQueue, Request, type RequestKind } from '../../../src/backend/reply-queue.ts';

const NAMES = Object.fromEntries(Object.entries(Request).map(([name, kind]) => [kind, name]));

/** A queue, what it decides in order, and a backend that answers by letters. */
function queueWithLog() {
  const log: string[] = [];
  const queue = new ReplyQueue({
    simulate: (request: RequestKind) => log.push(`simulate ${NAMES[request]}`),
    done: (_request: RequestKind, subject: unknown) => subject !== undefined && log.push(`done ${subject}`),
    dropped: (_, subject: unknown, failed: boolean) => subject !== undefined && log.push(`${failed ? 'failed' : 'dropped'} ${subject}`),
  });
  const answer = (letters: string) => {
    for (const letter of letters) {
      const type = letter.charCodeAt(0);
      log.push(queue.forwards(type) ? letter : `(${letter})`);
      queue.receive(type);
    }
  };
  return { queue, log, answer };
}

describe('a reply queue', () => {
  it('passes on the replies to what was passed on', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.parse, Request.bind, Request.execute, Request.sync]) queue.push(kind);
    answer('12DDCZ');
    expect(log).toEqual(['1', '2', 'D', 'D', 'C', 'Z']);
    expect(queue.length).toBe(0);
  });

  it('keeps the replies to its own requests to itself', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.query, Disposition.skip);
    queue.push(Request.parse, Disposition.skip);
    queue.push(Request.bind);
    queue.push(Request.execute);
    queue.push(Request.sync);
    answer('TDCZ12CZ');
    expect(log).toEqual(['(T)', '(D)', '(C)', '(Z)', '(1)', '2', 'C', 'Z']);
  });

  it('answers what was never sent behind what came before and ahead of what comes after', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.bind);
    queue.push(Request.execute);
    queue.push(Request.close, Disposition.simulate);
    queue.push(Request.parse, Disposition.simulate);
    queue.push(Request.bind);
    queue.push(Request.sync);
    answer('2C2Z');
    expect(log).toEqual(['2', 'C', 'simulate close', 'simulate parse', '2', 'Z']);
  });

  it('answers at once what was never sent while nothing else is due', () => {
    const { queue, log } = queueWithLog();
    queue.push(Request.parse, Disposition.simulate, 'p');
    expect(log).toEqual(['simulate parse', 'done p']);
  });

  it('drops what the backend throws away after an error, the last one first', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.parse, Disposition.forward, 'a');
    queue.push(Request.parse, Disposition.simulate, 'b');
    queue.push(Request.close, Disposition.simulate, 'c');
    queue.push(Request.sync, Disposition.forward, 's');
    answer('EZ');
    expect(log).toEqual(['E', 'dropped c', 'dropped b', 'failed a', 'Z', 'done s']);
  });

  it('drops requests until the Sync has been sent, a Query too', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.bind);
    answer('E');
    expect(queue.missingSync).toBe('discarding');
    queue.push(Request.query, Disposition.forward, 'q');
    queue.push(Request.sync);
    expect(queue.length).toBe(1);
    answer('Z');
    expect(log).toEqual(['E', 'dropped q', 'Z']);
  });

  it('tells the client of an error that a request of ours met in its batch', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.parse, Disposition.skip, 'injected');
    queue.push(Request.bind);
    queue.push(Request.sync);
    answer('EZ');
    expect(log).toEqual(['E', 'failed injected', 'Z']);
  });

  it('keeps an error in a whole request of ours to itself', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.query, Disposition.skip);
    queue.push(Request.query);
    answer('EZCZ');
    expect(log).toEqual(['(E)', '(Z)', 'C', 'Z']);
  });

  it('keeps an error to itself in a batch that a Sync of ours ends', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.close, Request.parse, Request.sync]) queue.push(kind, Disposition.skip);
    queue.push(Request.query);
    answer('3EZCZ');
    expect(log).toEqual(['(3)', '(E)', '(Z)', 'C', 'Z']);
  });

  it('counts no Sync that the backend ignores in the middle of COPY data', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.bind, Request.execute, Request.sync]) queue.push(kind);
    answer('2G');
    queue.push(Request.sync);
    queue.push(Request.copyEnd);
    queue.push(Request.sync);
    answer('CZ');
    expect(log).toEqual(['2', 'G', 'C', 'Z']);
    expect(queue.length).toBe(0);
  });

  it('knows which Sync counts when all of a COPY was sent at once', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.execute, Request.sync, Request.copyEnd, Request.sync, Request.query]) queue.push(kind);
    answer('GCZCZ');
    expect(log).toEqual(['G', 'C', 'Z', 'C', 'Z']);
    expect(queue.length).toBe(0);
  });

  it('holds a pipeline of thousands', () => {
    const { queue, answer } = queueWithLog();
    for (let i = 0; i < 5_000; i += 1) {
      queue.push(Request.bind);
      queue.push(Request.execute);
      queue.push(Request.sync);
    }
    answer('2CZ'.repeat(5_000));
    expect(queue.length).toBe(0);
  });
});

describe('a Sync behind a COPY', () => {
  const copy = [Request.bind, Request.execute, Request.sync];

  it('is ignored, so that another is awaited when the data has come', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of copy) queue.push(kind);
    answer('2G');
    expect([queue.copyIn, queue.missingSync]).toEqual([true, 'ignored']);
    queue.push(Request.copyEnd);
    answer('C');
    expect([queue.copyIn, queue.length, queue.missingSync]).toEqual([false, 0, 'ignored']);
    queue.push(Request.sync);
    answer('Z');
    expect([queue.length, queue.missingSync]).toEqual([0, 'none']);
    expect(log).toEqual(['2', 'G', 'C', 'Z']);
  });

  it('is ignored just as well when it comes after the COPY has begun', () => {
    const { queue, answer } = queueWithLog();
    queue.push(Request.execute);
    answer('G');
    queue.push(Request.sync);
    expect([queue.length, queue.missingSync]).toEqual([1, 'ignored']);
  });

  it('is awaited when the data was wrong', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of copy) queue.push(kind);
    answer('2GE');
    expect([queue.length, queue.missingSync]).toEqual([0, 'discarding']);
    queue.push(Request.copyEnd);
    queue.push(Request.sync);
    answer('Z');
    expect([queue.length, queue.missingSync]).toEqual([0, 'none']);
  });

  it('is not missed when another is on its way already', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of [...copy, Request.copyEnd, Request.sync]) queue.push(kind);
    answer('2GC');
    expect([queue.length, queue.missingSync]).toEqual([1, 'none']);
    answer('Z');
    expect(queue.length).toBe(0);
  });

  it('is nothing to a simple query', () => {
    const { queue, answer } = queueWithLog();
    queue.push(Request.query);
    answer('G');
    queue.push(Request.sync);
    queue.push(Request.copyEnd);
    answer('CZ');
    expect([queue.length, queue.missingSync]).toEqual([0, 'none']);
  });

  it('is ignored by the second COPY of a query as by the first', () => {
    const { queue, answer } = queueWithLog();
    queue.push(Request.query);
    answer('G');
    queue.push(Request.copyEnd);
    answer('CG');
    expect(queue.copyIn).toBe(true);
    queue.push(Request.sync);
    queue.push(Request.copyEnd);
    answer('CZ');
    expect(queue.length).toBe(0);
  });

  it('counts where another request is before it, as the COPY has failed by then', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of [Request.query, Request.copyEnd, Request.query, Request.copyEnd, Request.parse, Request.sync]) queue.push(kind);
    answer('GCGEZ');
    answer('GCZ');
    answer('1');
    expect(queue.length).toBe(1);
    answer('Z');
    expect([queue.length, queue.copyIn]).toEqual([0, false]);
  });

  it('is ignored by the second COPY of a query, too, when all has been sent before the first began', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of [Request.query, Request.copyEnd, Request.sync, Request.copyEnd]) queue.push(kind);
    answer('GCGCZ');
    expect([queue.length, queue.copyIn]).toEqual([0, false]);
  });
});

describe('a ReadyForQuery more than is known of, because a COPY has failed before it came to its data', () => {
  const fail = () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.bind, Request.execute, Request.sync, Request.copyEnd, Request.sync]) queue.push(kind);
    answer('2GEZ');
    return { queue, log, answer };
  };

  it("is distinguished from the answer to Postern's next request, which follows it", () => {
    const { queue, log, answer } = fail();
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'ambiguous']);
    queue.push(Request.query, Disposition.skip);
    answer('Z');
    expect([queue.length, queue.syncInCopy]).toEqual([1, 'ambiguous']);
    answer('TDCZ');
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'none']);
    expect(log).toEqual(['2', 'G', 'E', 'Z', 'Z', '(T)', '(D)', '(C)', '(Z)']);
  });

  it('is distinguished from the answer to a later Query of the client', () => {
    const { queue, log, answer } = queueWithLog();
    for (const kind of [Request.bind, Request.execute, Request.sync, Request.copyEnd, Request.sync, Request.query]) queue.push(kind);
    answer('2GEZZ');
    expect(queue.length).toBe(1);
    answer('TDCZ');
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'none']);
    expect(log).toEqual(['2', 'G', 'E', 'Z', 'Z', 'T', 'D', 'C', 'Z']);
  });

  it('is distinguished from the one that ends the COPY itself, if that was a Query', () => {
    const { queue, log, answer } = queueWithLog();
    queue.push(Request.query);
    answer('G');
    queue.push(Request.sync);
    queue.push(Request.copyEnd);
    answer('EZ');
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'ambiguous']);
    queue.push(Request.query);
    answer('Z');
    expect([queue.length, queue.syncInCopy]).toEqual([1, 'ambiguous']);
    answer('CZ');
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'none']);
    expect(log).toEqual(['G', 'E', 'Z', 'Z', 'C', 'Z']);
  });

  it('need not come', () => {
    const { queue, log, answer } = fail();
    queue.push(Request.query, Disposition.skip);
    answer('TDCZ');
    expect([queue.length, queue.syncInCopy]).toEqual([0, 'none']);
    expect(log).toEqual(['2', 'G', 'E', 'Z', '(T)', '(D)', '(C)', '(Z)']);
  });

  it('ends the wait for a Sync', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of [Request.execute, Request.sync]) queue.push(kind);
    answer('GE');
    expect(queue.missingSync).toBe('discarding');
    answer('Z');
    expect(queue.missingSync).toBe('none');
  });
});

describe('a Sync amid the data of a COPY that fails', () => {
  const failing = (...behind: RequestKind[]) => {
    const { queue, answer } = queueWithLog();
    queue.push(Request.execute);
    answer('G');
    for (const kind of [Request.sync, ...behind]) queue.push(kind);
    answer('E');
    return queue;
  };

  it('leaves it unclear what is answered, where other requests are behind it', () => {
    expect(failing(Request.query).missingSync).toBe('unclear');
    expect(failing(Request.copyEnd, Request.parse, Request.sync).missingSync).toBe('unclear');
    const queue = failing(Request.copyEnd);
    expect(queue.missingSync).not.toBe('unclear');
    queue.push(Request.query);
    expect(queue.missingSync).toBe('unclear');
  });

  it('leaves nothing unclear, where only the end of the data is, and a Sync that counts', () => {
    const queue = failing(Request.copyEnd, Request.sync, Request.query);
    queue.push(Request.query);
    expect(queue.missingSync).not.toBe('unclear');
  });
});

describe('what is still to be answered', () => {
  it("is known, with whether it has a Query, and whether it is a client's", () => {
    const { queue, answer } = queueWithLog();
    expect([queue.onlyOurs, queue.owesQuery]).toEqual([true, false]);
    queue.push(Request.query, Disposition.skip);
    expect([queue.onlyOurs, queue.owesQuery]).toEqual([true, true]);
    queue.push(Request.bind);
    expect(queue.onlyOurs).toBe(false);
    answer('CZ');
    expect([queue.onlyOurs, queue.owesQuery]).toEqual([false, false]);
  });

  it('is known, too, when some requests are discarded and some ignored', () => {
    const { queue, answer } = queueWithLog();
    for (const kind of [Request.bind, Request.execute, Request.query]) queue.push(kind);
    queue.push(Request.sync, Disposition.skip);
    answer('E');
    expect([queue.onlyOurs, queue.owesQuery]).toEqual([true, false]);
    answer('Z');
    for (const kind of [Request.query, Request.sync]) queue.push(kind);
    answer('G');
    expect([queue.onlyOurs, queue.owesQuery]).toEqual([false, true]);
  });
});
