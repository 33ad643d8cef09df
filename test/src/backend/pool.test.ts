import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished, vi } from 'vitest';
import { BackendConnection } from '../../../src/backend/connection.ts';
import type { OpenBackend } from '../../../src/backend/organization-pool.ts';
import { runCommand } from '../../../src/backend/own-request.ts';
import { Pool, type PoolLimits } from '../../../src/backend/pool.ts';
import { ServiceError } from '../../../src/errors.ts';
import type { CustomOptions } from '../../../src/syntax/session-traits.ts';
import { acquire } from '../../support/acquire.ts';
import { eventually } from '../../support/eventually.ts';
import { queryMessage } from '../../support/raw-session.ts';
import { openScriptedBackend } from '../../support/scripted-backend.ts';

const login = { ...inject('cluster'), connectTimeoutMs: 60_000 };
const open: OpenBackend = () => BackendConnection.open(login);

/** For pools whose callers wait for little time: a login may take longer. */
async function openBefore(): Promise<OpenBackend> {
  const backend = await BackendConnection.open(login);
  return async () => backend;
}

let pool: Pool;
function poolOf(limits: Partial<PoolLimits>): Pool {
  pool = new Pool({ max: 20, maxPerTenant: 10, queueTimeoutMs: 60_000, idleMs: 60_000, ...limits }, () => {});
  return pool;
}

beforeEach(() => {
  poolOf({});
});
afterEach(() => pool.close());

/** Whether a promise has been kept by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol('pending');
  await new Promise(setImmediate);
  return (await Promise.race([promise.catch(() => undefined), Promise.resolve(pending)])) !== pending;
}

describe('the pool', () => {
  it('lends the session used last first', async () => {
    const [first, second] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
    await pool.release('a', first, true);
    await pool.release('a', second, true);
    expect(await acquire(pool, 'a', open)).toBe(second);
    expect(pool.tryAcquire('a')).toBe(first);
    expect(pool.tryAcquire('a')).toBeUndefined();
  });

  it('leases the preferred session, if it is idle', async () => {
    const [first, second] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
    await pool.release('a', first, true);
    await pool.release('a', second, true);
    expect(pool.tryAcquire('a', first)).toBe(first);
  });

  it('never lends one organization the session of another', async () => {
    const backend = await acquire(pool, 'a', open);
    await pool.release('a', backend, true);
    expect(pool.tryAcquire('b')).toBeUndefined();
    expect(await acquire(pool, 'b', open)).not.toBe(backend);
  });

  describe('where customized options exist in some sessions', () => {
    const OWN = new Set(['my.own']);
    const acquireWith = (customOptions: CustomOptions) =>
      new Promise<BackendConnection>((resolve, reject) => {
        pool.enqueue('a', { open, customOptions, settle: (result) => (result instanceof ServiceError ? reject(result) : resolve(result)) });
      });

    it('lends them to those only who have set the options, and these first', async () => {
      const [first, second] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
      first.session.customOptions = OWN;
      await pool.release('a', first, true);
      await pool.release('a', second, true);
      expect(pool.tryAcquire('a', first, new Set(['my.other']))).toBe(second);
      expect(pool.tryAcquire('a', first)).toBeUndefined();
      expect(pool.tryAcquire('a', undefined, new Set(['my.own', 'my.other']))).toBe(first);
    });

    it('replaces one that suits nobody who waits', async () => {
      poolOf({ maxPerTenant: 1 });
      const backend = await acquireWith(OWN);
      backend.session.customOptions = OWN;
      await pool.release('a', backend, true);
      expect(pool.tryAcquire('a')).toBeUndefined();
      const fresh = await acquire(pool, 'a', open);
      expect(fresh).not.toBe(backend);
      expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 1 });
      const waiting = acquire(pool, 'a', open);
      fresh.session.customOptions = OWN;
      await pool.release('a', fresh, true);
      expect(await waiting).not.toBe(fresh);
    });

    it('gives one to a waiter whom it suits, and keeps another for who waits longer', async () => {
      poolOf({ maxPerTenant: 2 });
      const [own, other] = [await acquireWith(OWN), await acquire(pool, 'a', open)];
      own.session.customOptions = OWN;
      const clean = acquire(pool, 'a', open);
      const suited = acquireWith(OWN);
      await pool.release('a', own, true);
      expect(await suited).toBe(own);
      expect(await isSettled(clean)).toBe(false);
      await pool.release('a', other, true);
      expect(await clean).toBe(other);
    });
  });

  it('serves waiters in order', async () => {
    poolOf({ maxPerTenant: 1 });
    const backend = await acquire(pool, 'a', open);
    const served: number[] = [];
    const waiting = [1, 2, 3].map((n) =>
      acquire(pool, 'a', open).then(async (lent) => {
        served.push(n);
        await pool.release('a', lent, true);
      }),
    );
    expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 1, opening: 0, waiters: 3 });
    await pool.release('a', backend, true);
    await Promise.all(waiting);
    expect(served).toEqual([1, 2, 3]);
  });

  it('lets no caller wait longer than the limit', async () => {
    poolOf({ maxPerTenant: 1, queueTimeoutMs: 500 });
    await acquire(pool, 'a', await openBefore());
    await expect(acquire(pool, 'a', open)).rejects.toMatchObject({ kind: 'pool_timeout', sqlstate: '53300' });
    expect(pool.snapshot().waiters).toBe(0);
  });

  it('forgets waiters that have withdrawn', async () => {
    poolOf({ maxPerTenant: 1 });
    await acquire(pool, 'a', open);
    const gone = new AbortController();
    const waiting = acquire(pool, 'a', open, gone.signal);
    gone.abort();
    await expect(waiting).rejects.toMatchObject({ kind: 'query_canceled' });
    expect(pool.snapshot().waiters).toBe(0);
  });

  it('takes an idle session from another organization when it is full', async () => {
    poolOf({ max: 2 });
    const lent = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
    for (const backend of lent) await pool.release('a', backend, true);
    await acquire(pool, 'b', open);
    expect(pool.snapshot()).toMatchObject({ idle: 1, leased: 1, opening: 0, waiters: 0 });
    expect(lent[0]?.closed || pool.tryAcquire('a') === lent[1]).toBe(true);
  });

  it('keeps the last tenth for organizations that have none', async () => {
    poolOf({ max: 10, maxPerTenant: 10 });
    for (let i = 0; i < 9; i += 1) await acquire(pool, 'greedy', open);
    const tenth = acquire(pool, 'greedy', open);
    tenth.catch(() => {});
    expect(await isSettled(tenth)).toBe(false);
    expect(await acquire(pool, 'modest', open)).toBeInstanceOf(BackendConnection);
  });

  it('gives a session that comes back to an organization that waits with fewer', async () => {
    poolOf({ max: 3, maxPerTenant: 3 });
    const greedy = [await acquire(pool, 'greedy', open), await acquire(pool, 'greedy', open), await acquire(pool, 'greedy', open)];
    const more = acquire(pool, 'greedy', open);
    more.catch(() => {});
    const modest = acquire(pool, 'modest', open);
    await pool.release('greedy', greedy[0] as BackendConnection, true);
    expect(await modest).toBeInstanceOf(BackendConnection);
    expect(await isSettled(more)).toBe(false);
  });

  it('counts the sessions of clones in the limit of their source', async () => {
    poolOf({ maxPerTenant: 2 });
    const source = await acquire(pool, 'a', open);
    const clone = await acquire(pool, 'b', open, undefined, 'a');
    const [next, other] = [acquire(pool, 'c', open, undefined, 'a'), acquire(pool, 'd', open)];
    // A stranger has a limit of its own.
    await pool.release('d', await other, true);
    expect(await isSettled(next)).toBe(false);
    // The idle session of the source makes room: it is closed, and never lent to a clone.
    await pool.release('a', source, true);
    expect(await next).not.toBe(source);
    expect(pool.tryAcquire('a')).toBeUndefined();
    const again = acquire(pool, 'a', open);
    expect(await isSettled(again)).toBe(false);
    await pool.release('b', clone, true);
    await pool.release('a', await again, true);
    await pool.release('c', await next, true);
    expect(pool.snapshot()).toMatchObject({ leased: 0, waiters: 0 });
  });

  it('lets the readers of an organization and of its clones leave two sessions together', async () => {
    poolOf({ maxPerTenant: 8 });
    const readers = await Promise.all([1, 2, 3].map(() => acquire(pool, 'a:read', open, undefined, 'a')));
    readers.push(...(await Promise.all([1, 2, 3].map(() => acquire(pool, 'b:read', open, undefined, 'a')))));
    const next = acquire(pool, 'b:read', open, undefined, 'a');
    expect(await isSettled(next)).toBe(false);
    const writers = await Promise.all([acquire(pool, 'a', open), acquire(pool, 'b', open, undefined, 'a')]);
    expect(await isSettled(next)).toBe(false);
    await pool.release('b:read', readers.pop() as BackendConnection, true);
    await pool.release('b:read', await next, true);
    for (const backend of readers) await pool.release(readers.indexOf(backend) < 3 ? 'a:read' : 'b:read', backend, true);
    await pool.release('a', writers[0] as BackendConnection, true);
    await pool.release('b', writers[1] as BackendConnection, true);
  });

  it('keeps two sessions from the readers of an organization, which leave none of them otherwise', async () => {
    poolOf({ maxPerTenant: 8 });
    for (let n = 0; n < 6; n += 1) await acquire(pool, 'a:read', open);
    const reader = acquire(pool, 'a:read', open);
    reader.catch(() => {});
    expect(await isSettled(reader)).toBe(false);
    const owners = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)] as const;
    const owner = acquire(pool, 'a', open);
    // One that comes back stays with the role that it is of.
    await pool.release('a', owners[0], true);
    expect(await owner).toBe(owners[0]);
    expect(await isSettled(reader)).toBe(false);
  });

  it('counts the sessions of both roles of an organization, and gives each role what the other does not use', async () => {
    poolOf({ maxPerTenant: 2 });
    const owners = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)] as const;
    const reader = acquire(pool, 'a:read', open);
    expect(await isSettled(reader)).toBe(false);
    await pool.release('a', owners[0], true);
    const readers = [await reader];
    expect(readers).not.toContain(owners[0]);
    // Both have one now: it stays with the role that waits itself.
    const [ownersNext, readersNext] = [acquire(pool, 'a', open), acquire(pool, 'a:read', open)];
    await pool.release('a', owners[1], true);
    expect(await ownersNext).toBe(owners[1]);
    expect(await isSettled(readersNext)).toBe(false);
    await pool.release('a', owners[1], true);
    readers.push(await readersNext);
    for (const backend of readers) await pool.release('a:read', backend, true);
    expect(pool.snapshot()).toMatchObject({ idle: 2, leased: 0, waiters: 0 });
    await acquire(pool, 'a', open);
    expect(pool.snapshot()).toMatchObject({ idle: 1, leased: 1, waiters: 0 });
    expect(pool.sessions().map(([organizationId]) => organizationId)).toEqual(['a', 'a']);
  });

  it('cleans a session that may hold something before it is lent again', async () => {
    const backend = await acquire(pool, 'a', open);
    backend.session.settingsMade(new Map([['timezone', 'UTC']]));
    await pool.release('a', backend, false);
    expect(pool.tryAcquire('a')).toBe(backend);
    expect(backend.session.pristine).toBe(true);
  });

  it('never leases a session that cannot be reset, not even to a waiter (L25)', async () => {
    poolOf({ maxPerTenant: 1 });
    const backend = await acquire(pool, 'a', open);
    const waiting = acquire(pool, 'a', open);
    // DISCARD ALL is refused in a transaction.
    backend.write(queryMessage('BEGIN'));
    await pool.release('a', backend, false);
    const next = await waiting;
    expect(next).not.toBe(backend);
    expect(await runCommand(next, 'SELECT 1')).toBe('SELECT 1');
    expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 1, opening: 0, waiters: 0 });
    await eventually('the other is closed', () => backend.closed);
  });

  it('never leases a session with a short timeout', async () => {
    poolOf({ maxPerTenant: 1 });
    const limits = { statement_timeout: ['1ms', '50', '99ms', '99000us'], lock_timeout: ['5'], transaction_timeout: ['20ms'] };
    const isKept = ['0', '100', '100ms', '1s', '30min', '0ms'];
    const remain = async (name: string, value: string) => {
      const backend = await acquire(pool, 'a', open);
      // The server gets a long one: it would end the reset, or the session, of a slow machine.
      await runCommand(backend, `SET ${name} = '59min'`);
      backend.session.settingsMade(new Map([[name, value]]));
      await pool.release('a', backend, true);
      expect(backend.closed).toBe(false);
      const isSet = await runCommand(backend, `SELECT WHERE current_setting('${name}') = '59min'`);
      expect(isSet).toBe(backend.session.settings.size > 0 ? 'SELECT 1' : 'SELECT 0');
      return backend.session.settings.size > 0;
    };
    for (const [name, values] of Object.entries(limits))
      for (const value of values) expect([value, await remain(name, value)]).toEqual([value, false]);
    for (const value of isKept) expect([value, await remain('statement_timeout', value)]).toEqual([value, true]);
  });

  it('drops a session that speaks while it is idle (L25)', async () => {
    const [backend, other] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
    await runCommand(backend, 'LISTEN rumours');
    await pool.release('a', backend, true);
    await runCommand(other, 'NOTIFY rumours');
    await eventually('the session is closed', () => backend.closed);
    expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 1, opening: 0, waiters: 0 });
  });

  it('drops a session that was lost while it was idle', async () => {
    const backend = await acquire(pool, 'a', open);
    await pool.release('a', backend, true);
    backend.destroy();
    await eventually('the session is forgotten', async () => pool.snapshot().idle === 0);
    expect(await acquire(pool, 'a', open)).not.toBe(backend);
  });

  it('closes what has been idle for too long', async () => {
    poolOf({ idleMs: 40 });
    const backend = await acquire(pool, 'a', open);
    await pool.release('a', backend, true);
    await eventually('the session is closed', async () => backend.closed);
    expect(pool.snapshot().idle).toBe(0);
  });

  it('lends no session again that was retired', async () => {
    const backend = await acquire(pool, 'a', open);
    pool.retire('a');
    await pool.release('a', backend, true);
    expect(pool.tryAcquire('a')).toBeUndefined();
  });

  it('does not lend one that was logging in when they were retired: who waits gets another', async () => {
    const opened: BackendConnection[] = [];
    const noted: OpenBackend = async (signal) => {
      const backend = await open(signal);
      opened.push(backend);
      return backend;
    };
    const waiting = acquire(pool, 'a', noted);
    pool.retire('a');
    expect([await waiting]).toEqual(opened.slice(1));
    await eventually('the first is closed', () => opened[0]?.closed === true);
  });

  it('has its waiters leave the queue when it is suspended', async () => {
    poolOf({ max: 1, maxPerTenant: 1 });
    const backend = await acquire(pool, 'a', open);
    let isSuspended = false;
    pool.enqueue('a', { open, settle: () => expect.unreachable(), suspended: () => (isSuspended = true) });
    pool.suspend('a');
    expect(isSuspended).toBe(true);
    await pool.release('a', backend, true);
    expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 0, waiters: 0 });
  });

  it('allows keeping a backend only while no one waits for one', async () => {
    poolOf({ max: 3, maxPerTenant: 2 });
    const mayKeepBusy = () => [true, false].map((mayGrow) => pool.mayKeepBusy('a', mayGrow));
    const first = await acquire(pool, 'a', open);
    expect(mayKeepBusy()).toEqual([true, false]);
    const second = await acquire(pool, 'a', open);
    expect(mayKeepBusy()).toEqual([true, true]);
    const waiting = acquire(pool, 'a', open);
    expect(mayKeepBusy()).toEqual([false, false]);
    await pool.release('a', first, true);
    await pool.release('a', second, true);
    await pool.release('a', await waiting, true);
  });

  it('lets no backend be kept busy that another organization is waiting for', async () => {
    poolOf({ max: 2 });
    const [first] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
    const waiting = acquire(pool, 'b', open);
    expect(pool.mayKeepBusy('a', true)).toBe(false);
    await pool.release('a', first, true);
    await waiting;
    expect(pool.mayKeepBusy('a', true)).toBe(true);
  });

  it('gives the error of a failed login to the waiter, and tries again for the next', async () => {
    let attempts = 0;
    const flaky: OpenBackend = (signal) => {
      attempts += 1;
      return attempts === 1 ? Promise.reject(new ServiceError('not_ready', 'the database system is starting up')) : open(signal);
    };
    await expect(acquire(pool, 'a', flaky)).rejects.toMatchObject({ sqlstate: '57P03' });
    expect(await acquire(pool, 'a', flaky)).toBeInstanceOf(BackendConnection);
  });

  describe('whose server refuses further sessions', () => {
    let attempts: number;
    const refused: OpenBackend = () => {
      attempts += 1;
      return Promise.reject(new ServiceError('too_many_connections', 'too many connections'));
    };
    beforeEach(() => {
      attempts = 0;
    });

    /** Nothing is tried again only because time has passed, however long the test takes. */
    function holdRetries(): void {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      onTestFinished(() => void vi.useRealTimers());
    }

    it('keeps waiters that a released session can serve, and tries only once at a time (L22)', async () => {
      holdRetries();
      const backend = await acquire(pool, 'a', open);
      const other = await acquire(pool, 'b', open);
      const waiting = [acquire(pool, 'a', refused), acquire(pool, 'a', refused), acquire(pool, 'b', refused)];
      for (const wait of waiting) expect(await isSettled(wait)).toBe(false);
      await pool.release('b', other, true);
      expect(await waiting[2]).toBe(other);
      await pool.release('a', backend, true);
      expect(await waiting[0]).toBe(backend);
      await pool.release('a', backend, true);
      expect(await waiting[1]).toBe(backend);
      expect(attempts).toBe(3);
    });

    it('tries again when a session has ended that was closed for another organization', async () => {
      poolOf({ max: 1 });
      const idle = await acquire(pool, 'a', open);
      await pool.release('a', idle, true);
      // The server has one connection slot.
      const onlyOne: OpenBackend = (signal) => (idle.isGone ? open(signal) : refused(signal));
      const startedAt = performance.now();
      expect(await acquire(pool, 'b', onlyOne)).toBeInstanceOf(BackendConnection);
      // Once more for each second that the end has taken.
      expect(attempts).toBeGreaterThan(0);
      expect(attempts).toBeLessThanOrEqual(1 + Math.floor((performance.now() - startedAt) / 990));
    });

    it('tries again when a session has been closed', async () => {
      holdRetries();
      const [lost, kept] = [await acquire(pool, 'a', open), await acquire(pool, 'a', open)];
      let isFull = true;
      const waiting = acquire(pool, 'a', (signal) => (isFull ? refused(signal) : open(signal)));
      expect(await isSettled(waiting)).toBe(false);
      isFull = false;
      pool.discard('a', lost, 'destroyed');
      expect([lost, kept]).not.toContain(await waiting);
      expect(attempts).toBe(1);
    });

    it('tries again when a slot may be free that others had, one session at a time', async () => {
      let isFull = true;
      let trying = 0;
      const mostAtOnce: number[] = [];
      const later: OpenBackend = async (signal) => {
        trying += 1;
        mostAtOnce.push(trying);
        try {
          return await (isFull ? refused(signal) : open(signal));
        } finally {
          trying -= 1;
        }
      };
      const waiting = ['a', 'b', 'b'].map((organization) => acquire(pool, organization, later));
      await eventually('it has tried again', () => attempts > 4);
      mostAtOnce.length = 0;
      await eventually('it has tried once more', () => attempts > 6);
      expect(Math.max(...mostAtOnce)).toBe(1);
      isFull = false;
      for (const backend of await Promise.all(waiting)) expect(backend).toBeInstanceOf(BackendConnection);
    });

    it('makes room with an idle session of another organization, but not where it is the role that has too many', async () => {
      const idle = await acquire(pool, 'a', open);
      await pool.release('a', idle, true);
      const cause = Object.assign(new Error('too many connections for role "b"'), { routine: 'InitializeSessionUserId' });
      let isOfRole = true;
      const full: OpenBackend = (signal) => {
        if (!isOfRole) return idle.isGone ? open(signal) : refused(signal);
        attempts += 1;
        return Promise.reject(new ServiceError('too_many_connections', 'too many connections', { cause }));
      };
      const waiting = acquire(pool, 'b', full);
      await eventually('it has tried again', () => attempts > 1);
      expect(pool.snapshot().idle).toBe(1);
      isOfRole = false;
      expect(await waiting).toBeInstanceOf(BackendConnection);
    });

    it('says so to a caller that has waited too long', async () => {
      poolOf({ queueTimeoutMs: 500 });
      const detail = 'Waited 500 ms. The server has no connection slots free.';
      await expect(acquire(pool, 'a', refused)).rejects.toMatchObject({ kind: 'pool_timeout', sqlstate: '53300', detail });
      const backend = await acquire(pool, 'a', await openBefore());
      const waiting = acquire(pool, 'a', refused);
      expect(await isSettled(waiting)).toBe(false);
      pool.discard('a', backend, 'destroyed');
      await expect(waiting).rejects.toMatchObject({ sqlstate: '53300', detail });
    });
  });

  describe('counts a session that it has given up', () => {
    it('until its process has ended, after it is terminated', async () => {
      poolOf({ maxPerTenant: 1, queueTimeoutMs: 1_000 });
      const backend = await acquire(pool, 'a', await openBefore());
      const next = await openBefore();
      process.kill(backend.processId, 'SIGSTOP');
      try {
        pool.discard('a', backend, 'destroyed');
        expect(pool.snapshot()).toMatchObject({ leased: 0, leaving: 1 });
        const detail = 'Waited 1000 ms. Sessions that were given up and have not ended: 1.';
        await expect(acquire(pool, 'a', open)).rejects.toMatchObject({ kind: 'pool_timeout', detail });
        expect(pool.sessions()).toEqual([['a', backend]]);
      } finally {
        process.kill(backend.processId, 'SIGCONT');
      }
      await eventually('it has ended', () => pool.snapshot().leaving === 0);
      expect(await acquire(pool, 'a', next)).not.toBe(backend);
    });

    it('no longer than the server knows of such a process', async () => {
      poolOf({ maxPerTenant: 1, queueTimeoutMs: 60_000 });
      const scripted = await openScriptedBackend();
      scripted.holdOpen();
      const lost = await acquire(pool, 'a', async () => scripted.backend);
      pool.discard('a', lost, 'destroyed');
      expect(await acquire(pool, 'a', open)).toBeInstanceOf(BackendConnection);
      await scripted.close();
    });
  });

  it('fails waiters when it closes, and closes released sessions', async () => {
    poolOf({ maxPerTenant: 1 });
    const backend = await acquire(pool, 'a', open);
    const waiting = acquire(pool, 'a', open);
    pool.close();
    await expect(waiting).rejects.toMatchObject({ kind: 'shutting_down' });
    await expect(acquire(pool, 'a', open)).rejects.toMatchObject({ kind: 'shutting_down' });
    await pool.release('a', backend, true);
    expect(pool.snapshot()).toMatchObject({ idle: 0, leased: 0, opening: 0, waiters: 0 });
  });
});
