import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { BackendConnection } from '../../../src/backend/connection.ts';
import { LatencyBaseline, StatementLatency } from '../../../src/backend/session-state.ts';
import { ServiceError } from '../../../src/errors.ts';
import { Multiplexers } from '../../../src/multiplex/multiplexer.ts';
import { registryOf } from '../../../src/multiplex/statement-registry.ts';
import { DisconnectSignal, Lease, type Tenant } from '../../../src/router/lease.ts';
import { Deadline } from '../../../src/runtime/event-loop.ts';
import { jsonFormat } from '../../../src/sql/formats.ts';
import { type QueryReply, type QueryRequest, runQuery } from '../../../src/sql/query.ts';
import { QueryScheduler } from '../../../src/sql/query-scheduler.ts';
import { revocationListeners } from '../../../src/sql/session.ts';
import { eventually } from '../../support/eventually.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

const DEPTH = 8;
/** What takes no time here; on a machine that is busy with other tests some of it may. */
const SOON_MS = 60_000;
/** Of what is not to end by itself, however long the test takes. */
const NEVER_MS = 600_000;

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
  await database.asOwner(`
    CREATE TABLE guarded (n int); INSERT INTO guarded VALUES (7);
    CREATE TABLE large (n int, v text);
    INSERT INTO large SELECT 1, 'x' UNION ALL SELECT 2, repeat('y', 1000) FROM generate_series(1, 20000);
    CREATE TABLE huge (n int, v text);
    INSERT INTO huge VALUES (1, 'x'), (2, repeat('z', 34000000))`);
});
afterAll(() => database.close());

interface DeskOptions {
  readonly depth?: number;
  /** Where the organization is placed in a schema of that name. */
  readonly schema?: string;
}

/** An organization's way to its backends, without a router. */
class Desk {
  readonly told = new Map<string, number>();
  /** How many leases have been granted, and what the last one was on. */
  leases = 0;
  backend: BackendConnection | undefined;
  readonly tenant: Tenant;
  readonly revoked = new AbortController();
  readonly queries: QueryScheduler;

  constructor({ tenant }: Lease, { depth = DEPTH, schema }: DeskOptions) {
    const { organization } = tenant;
    const placement = schema === undefined ? organization.placement : { ...organization.placement, kind: 'schema' as const, schema };
    this.tenant = { ...tenant, organization: { ...organization, placement }, revoked: this.revoked.signal };
    const lease = () => this.lease();
    const mayKeepBusy = (_: Tenant, mayGrow: boolean) => !this.revoked.signal.aborted && database.pool.mayKeepBusy(database.name, mayGrow);
    this.queries = new QueryScheduler({ lease, mayKeepBusy }, new Multiplexers({ depth, spread: 1 }), this.#observe);
  }

  async lease(): Promise<Lease> {
    const { backend } = await database.lease();
    this.leases += 1;
    this.backend = backend;
    return new Lease(backend, this.tenant, 'http', database.pool, database.results, this.#observe);
  }

  readonly #observe = ({ name }: { readonly name: string }) => {
    this.told.set(name, this.count(name) + 1);
  };

  count(name: string): number {
    return this.told.get(name) ?? 0;
  }

  run(sql: string, params: QueryRequest['params'] = [], more: Partial<QueryRequest> = {}): Promise<QueryReply> {
    return this.queries.run(this.tenant, { sql, params, rowMode: 'array', timeoutMs: NEVER_MS, ...more });
  }

  async rows(sql: string, params?: QueryRequest['params'], more?: Partial<QueryRequest>): Promise<unknown> {
    return rowsOf(await this.run(sql, params, more));
  }

  /** Described, and prepared on all backends. */
  async warmUp(...statements: readonly (readonly [sql: string, params?: QueryRequest['params']])[]): Promise<void> {
    for (const [sql, params] of statements) {
      for (let i = 0; i < 3; i += 1) {
        const leases = await Promise.all(Array.from({ length: idle }, () => this.lease()));
        await Promise.all(
          leases.map(async (lease) => rowsOf(await runQuery(lease, { sql, params, rowMode: 'array', timeoutMs: NEVER_MS }))),
        );
      }
    }
  }

  /** All of them in one backend's pipeline, in this order. */
  async together(...runs: readonly (() => Promise<unknown>)[]): Promise<Promise<unknown>[]> {
    const shared = this.count('request.shared');
    // However long this takes: nobody gets on behind one that has been running for a while.
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    const [first, ...others] = runs;
    const answers = [first?.() ?? Promise.resolve()];
    // The backend is at hand, so that its lease is granted without anything else happening.
    for (let i = 0; i < 20; i += 1) await undefined;
    for (const run of others) answers.push(run());
    clock.mockRestore();
    for (const answer of answers) answer.catch(() => {});
    expect(this.count('request.shared') - shared).toBe(others.length);
    return answers;
  }
}

async function rowsOf({ body, done }: QueryReply): Promise<unknown> {
  const document = JSON.parse(body instanceof Readable ? await text(body) : body.toString());
  await done;
  return document.rows;
}

function isAtRest(): boolean {
  const { leased, opening, waiters } = database.pool.snapshot();
  return leased + opening + waiters === 0;
}

let desk: Desk;
/** How many backends there are. */
let idle: number;
/** All that have begun to run during a test. */
let deadlines: Set<Deadline>;
const created: Desk[] = [];

async function openDesk(options: DeskOptions = {}): Promise<Desk> {
  const lease = await database.lease();
  await lease.release(true);
  const opened = new Desk(lease, options);
  created.push(opened);
  return opened;
}

beforeEach(async () => {
  deadlines = new Set();
  const { resume } = Deadline.prototype;
  vi.spyOn(Deadline.prototype, 'resume').mockImplementation(function resumed(this: Deadline) {
    deadlines.add(this);
    resume.call(this);
  });
  // How long a read takes on a machine that is busy with other tests is not the matter here.
  vi.spyOn(StatementLatency.prototype, 'isQuick', 'get').mockReturnValue(true);
  vi.spyOn(StatementLatency.prototype, 'mayFollow').mockReturnValue(true);
  await openBackends();
  desk = await openDesk();
});

/** Everything is as it was, whatever has happened. */
afterEach(async () => {
  vi.restoreAllMocks();
  const desks = created.splice(0);
  await eventually('all leases are given back', isAtRest, SOON_MS);
  for (const { leases, revoked, told } of desks) {
    expect(told.get('lease.released') ?? 0).toBe(leases);
    expect(revocationListeners(revoked.signal).size).toBe(0);
  }
  expect([...deadlines].filter(({ index: place }) => place >= 0)).toEqual([]);
});

const ECHO = 'SELECT $1::text AS v';
const QUOTIENT = 'SELECT 10 / $1::int AS v';
const GUARDED = 'SELECT n FROM guarded';
const LARGE = 'SELECT v FROM large WHERE n = $1';
const HUGE = 'SELECT v FROM huge WHERE n = $1';

const echo = (value: string, more?: Partial<QueryRequest>) => (): Promise<unknown> => desk.rows(ECHO, [value], more);

async function whileLocked(act: () => Promise<void>): Promise<void> {
  const { admin } = database;
  await admin.query('BEGIN; LOCK TABLE guarded IN ACCESS EXCLUSIVE MODE');
  try {
    await act();
  } finally {
    await admin.query('COMMIT');
  }
}

async function soon<T>(answer: Promise<T> | undefined): Promise<T | undefined> {
  const late = delay(SOON_MS).then(() => {
    throw new Error('it takes too long');
  });
  late.catch(() => {});
  return Promise.race([answer, late]);
}

/** All that there can be, so that none has to be opened and prepared for those that run alone. */
async function openBackends(): Promise<void> {
  const leases = await Promise.all(Array.from({ length: 8 }, () => database.lease()));
  await Promise.all(leases.map((lease) => lease.release(true)));
  await eventually('the backends are there', isAtRest);
  ({ idle } = database.pool.snapshot());
}

/** No backend is at work, and none has been lost. */
async function expectHealthy(): Promise<void> {
  await eventually('the backends are given back', isAtRest);
  expect(database.pool.snapshot().idle).toBe(idle);
  const values = Array.from({ length: 20 }, (_, i) => `healthy ${i}`);
  expect(await Promise.all(values.map((value) => desk.rows(ECHO, [value])))).toEqual(values.map((value) => [[value]]));
}

test('quick reads share backends, and each gets its own answer', async () => {
  // However long each takes on a busy machine, those behind it do not go elsewhere.
  vi.spyOn(LatencyBaseline.prototype, 'stallTimeoutMs', 'get').mockReturnValue(NEVER_MS);
  await desk.warmUp([ECHO, ['']]);
  const before = desk.leases;
  const runs = 400;
  for (let i = 0; i < runs; i += DEPTH) {
    const values = Array.from({ length: DEPTH }, (_, at) => `v${i + at}`);
    expect(await Promise.all(await desk.together(...values.map((value) => echo(value))))).toEqual(values.map((value) => [[value]]));
  }
  expect(desk.leases - before).toBe(runs / DEPTH);
});

test('one that fails fails alone', async () => {
  await desk.warmUp([ECHO, ['']], [QUOTIENT, [2]]);
  const answers = await desk.together(
    echo('a'),
    () => desk.rows(QUOTIENT, [0]),
    echo('c'),
    () => desk.rows(QUOTIENT, [5]),
  );
  expect(await Promise.allSettled(answers)).toMatchObject([
    { value: [['a']] },
    { reason: { fields: { code: '22012' } } },
    { value: [['c']] },
    { value: [[2]] },
  ]);
});

test('one that cannot be sent keeps nobody from anything', async () => {
  await desk.warmUp([ECHO, ['']], [GUARDED]);
  await whileLocked(async () => {
    const disconnect = new DisconnectSignal();
    const [first, unsent, ...others] = await desk.together(
      () => desk.rows(GUARDED, [], { disconnect }),
      () => desk.rows(ECHO, ['one', 'too many']),
      echo('c'),
    );
    await expect(unsent).rejects.toMatchObject({ kind: 'invalid_request' });
    expect(await soon(Promise.all(others))).toEqual([[['c']]]);
    disconnect.happen();
    await expect(soon(first)).rejects.toMatchObject({ kind: 'query_canceled' });
  });
});

test('one that cannot be sent, with nobody else there, gives the backend back', async () => {
  await desk.warmUp([ECHO, ['']]);
  await expect(desk.rows(ECHO, [])).rejects.toMatchObject({ kind: 'invalid_request' });
  await expectHealthy();
});

describe('one that waits for a lock', () => {
  beforeEach(() => desk.warmUp([ECHO, ['']], [GUARDED]));

  test('makes way for those behind it, and is answered when it can be', async () => {
    let first: Promise<unknown> | undefined;
    await whileLocked(async () => {
      const [guarded, ...others] = await desk.together(() => desk.rows(GUARDED), echo('b'), echo('c'));
      first = guarded;
      expect(await soon(Promise.all(others))).toEqual([[['b']], [['c']]]);
      expect(desk.count('request.requeued')).toBe(2);
    });
    expect(await soon(first)).toEqual([[7]]);
  });

  test('makes way also when it was behind others first', async () => {
    let second: Promise<unknown> | undefined;
    await whileLocked(async () => {
      const [first, guarded, third] = await desk.together(echo('a'), () => desk.rows(GUARDED), echo('c'));
      second = guarded;
      expect(await soon(Promise.all([first, third]))).toEqual([[['a']], [['c']]]);
      expect(desk.count('request.requeued')).toBeGreaterThan(0);
    });
    expect(await soon(second)).toEqual([[7]]);
  });

  test('is waited for a while where everything takes its time', async () => {
    const { baseline } = registryOf(desk.tenant.organization);
    for (let i = 0; i < 2_000; i += 1) baseline.ran(20_000);
    expect(baseline.stallTimeoutMs).toBeGreaterThan(SOON_MS);
    const answers: Promise<unknown>[] = [];
    await whileLocked(async () => {
      answers.push(...(await desk.together(() => desk.rows(GUARDED), echo('b'))));
      await delay(100);
      expect(desk.count('request.requeued')).toBe(0);
    });
    expect(await soon(Promise.all(answers))).toEqual([[[7]], [['b']]]);
    expect(desk.count('request.requeued')).toBe(0);
  });

  test('is watched over also when the one before it was answered at the last moment', async () => {
    await whileLocked(async () => {
      const disconnect = new DisconnectSignal();
      const [first, second, third] = await desk.together(echo('a'), () => desk.rows(GUARDED, [], { disconnect }), echo('c'));
      await turn();
      await turn();
      // The answer to the first one is there when its patience ends, and has not been read.
      const blockedUntil = performance.now() + 50;
      while (performance.now() < blockedUntil);
      expect(await soon(Promise.all([first, third]))).toEqual([[['a']], [['c']]]);
      disconnect.happen();
      await expect(soon(second)).rejects.toMatchObject({ kind: 'query_canceled' });
    });
  });

  const ends = [
    ['its caller goes away', 'query_canceled', (disconnect: DisconnectSignal) => disconnect.happen(), NEVER_MS],
    ['its time is up', 'statement_timeout', () => {}, 1_000],
    ['its key is revoked', 'key_revoked', () => desk.revoked.abort(new ServiceError('key_revoked', 'rotated')), NEVER_MS],
  ] as const;
  test.each(ends)('is canceled when %s, and its backend is good for more', async (_, kind, happens, timeoutMs) => {
    await whileLocked(async () => {
      const disconnect = new DisconnectSignal();
      const [first, ...others] = await desk.together(() => desk.rows(GUARDED, [], { disconnect, timeoutMs }), echo('b'), echo('c'));
      expect(await soon(Promise.all(others))).toEqual([[['b']], [['c']]]);
      happens(disconnect);
      await expect(soon(first)).rejects.toMatchObject({ kind });
      expect(disconnect.listener).toBeUndefined();
      await eventually('the backend is given back', isAtRest, SOON_MS);
    });
    desk = await openDesk();
    await expectHealthy();
  });

  test('is told so at once when those behind it have met the same lock, and its backend is good for more', async () => {
    await whileLocked(async () => {
      const departures = [1, 2, 3].map(() => new DisconnectSignal());
      const answers = await desk.together(...departures.map((disconnect) => () => desk.rows(GUARDED, [], { disconnect })));
      await eventually('the others have gone elsewhere', () => desk.count('request.requeued') === 2);
      for (const disconnect of departures) disconnect.happen();
      for (const answer of answers) await expect(soon(answer)).rejects.toMatchObject({ kind: 'query_canceled' });
      await eventually('the backends are given back', isAtRest, SOON_MS);
    });
    await expectHealthy();
  });

  test('has gone before its turn: is run for nobody, and ends', async () => {
    await whileLocked(async () => {
      const disconnect = new DisconnectSignal();
      const [first, second] = await desk.together(echo('a'), () => desk.rows(GUARDED, [], { disconnect }));
      disconnect.happen();
      expect(await first).toEqual([['a']]);
      await expect(soon(second)).rejects.toMatchObject({ kind: 'query_canceled' });
    });
  });
});

test('a key that is revoked while its request waits for a backend is good for nothing', async () => {
  await desk.warmUp([ECHO, ['']]);
  const all = await Promise.all(Array.from({ length: 8 }, () => database.lease()));
  const waiting = desk.rows(ECHO, ['late']);
  waiting.catch(() => {});
  await turn();
  desk.revoked.abort(new ServiceError('key_revoked', 'rotated'));
  await Promise.all(all.map((lease) => lease.release(true)));
  await expect(waiting).rejects.toMatchObject({ kind: 'key_revoked' });
});

describe('a backend that is lost', () => {
  beforeEach(() => desk.warmUp([ECHO, ['']], [GUARDED]));

  test('is a matter of the one that was running alone', async () => {
    const answers = await desk.together(echo('a'), echo('b'), echo('c'));
    desk.backend?.destroy();
    expect(await Promise.allSettled(answers)).toMatchObject([{ reason: { kind: 'backend_lost' } }, { value: [['b']] }, { value: [['c']] }]);
  });

  test('is told as Postgres tells it', async () => {
    await whileLocked(async () => {
      const answers = await desk.together(() => desk.rows(GUARDED), echo('b'));
      const { backend } = desk;
      await eventually('it waits for the lock', async () => {
        const waiting = await database.admin.query(`SELECT FROM pg_locks WHERE pid = ${backend?.processId} AND NOT granted`);
        return waiting.rowCount === 1;
      });
      await database.admin.query(`SELECT pg_terminate_backend(${backend?.processId})`);
      expect(await Promise.allSettled(answers)).toMatchObject([{ reason: { fields: { code: '57P01' } } }, { value: [['b']] }]);
    });
  });

  test('is lost when it has been left alone, too', async () => {
    await whileLocked(async () => {
      const [first, second] = await desk.together(() => desk.rows(GUARDED), echo('b'));
      const { backend } = desk;
      expect(await soon(second)).toEqual([['b']]);
      backend?.destroy();
      await expect(soon(first)).rejects.toMatchObject({ kind: 'backend_lost' });
    });
  });
});

test('nobody gets on with a session that is to serve nobody else', async () => {
  await desk.warmUp([ECHO, ['']], [GUARDED]);
  await whileLocked(async () => {
    const disconnect = new DisconnectSignal();
    let after: Promise<unknown> | undefined;
    const [guarded] = await desk.together(
      () => desk.rows(GUARDED, [], { disconnect }),
      () => {
        const second = echo('b')();
        database.pool.retire(database.name);
        after = echo('c')();
        return second;
      },
    );
    expect(desk.count('request.shared')).toBe(1);
    expect(await soon(after)).toEqual([['c']]);
    disconnect.happen();
    await expect(soon(guarded)).rejects.toMatchObject({ kind: 'query_canceled' });
  });
});

test('nobody is answered behind one that has changed settings', async () => {
  await database.asOwner(`
    CREATE FUNCTION meddle() RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT set_config('DateStyle', 'German', false) $$;
    CREATE VIEW meddling AS SELECT n, CASE n WHEN 2 THEN meddle() END AS v FROM generate_series(1, 2) AS n`);
  const meddling = 'SELECT v FROM meddling WHERE n = $1';
  const date = 'SELECT $1::date AS v';
  await desk.warmUp([meddling, [1]], [date, ['2020-01-31']], [GUARDED]);
  await whileLocked(async () => {
    const disconnect = new DisconnectSignal();
    const ask = () => soon(desk.rows(date, ['2020-01-31']));
    const answers = await desk.together(
      () => desk.rows(meddling, [2]),
      ask,
      () => desk.rows(GUARDED, [], { disconnect }),
    );
    expect(await Promise.all(answers.slice(0, 2))).toEqual([[['German, DMY']], [['2020-01-31']]]);
    expect(await ask()).toEqual([['2020-01-31']]);
    expect(desk.count('request.shared')).toBe(2);
    disconnect.happen();
    await expect(soon(answers[2])).rejects.toMatchObject({ kind: 'query_canceled' });
  });
  await expectHealthy();
  expect(await desk.rows(date, ['2020-01-31'])).toEqual([['2020-01-31']]);
});

test('a result whose shape has changed is seen as it is now, by all', async () => {
  await database.asOwner('CREATE TABLE shape (a int); INSERT INTO shape VALUES (1), (2), (3)');
  const sql = 'SELECT * FROM shape WHERE a = $1';
  await desk.warmUp([sql, [1]]);
  const ask = (a: number) => () => desk.rows(sql, [a]);
  await database.asOwner("ALTER TABLE shape ADD b text DEFAULT 'new'");
  expect(await Promise.all(await desk.together(ask(1), ask(2), ask(3)))).toEqual([[[1, 'new']], [[2, 'new']], [[3, 'new']]]);
  await desk.warmUp([sql, [1]]);
  expect(await Promise.all(await desk.together(ask(3), ask(2), ask(1)))).toEqual([[[3, 'new']], [[2, 'new']], [[1, 'new']]]);
  await database.asOwner('DROP TABLE shape');
  for (const { reason } of (await Promise.allSettled(await desk.together(ask(1), ask(2)))) as PromiseRejectedResult[])
    expect(reason).toMatchObject({ fields: { code: '42P01' } });
  await database.asOwner('CREATE TABLE shape (a int)');
  expect(await ask(1)()).toEqual([]);
  await database.asOwner('DROP TABLE shape');
});

describe('a result that is suddenly large', () => {
  beforeEach(() => desk.warmUp([ECHO, ['']], [LARGE, [1]]));

  async function behindLarge(): Promise<[QueryReply, Promise<unknown>[]]> {
    const [first, ...others] = await desk.together(() => desk.run(LARGE, [2]), echo('b'), echo('c'));
    return [(await first) as QueryReply, others];
  }

  test('comes as a stream, and whole', async () => {
    const [reply, others] = await behindLarge();
    expect(reply.body).toBeInstanceOf(Readable);
    expect(await rowsOf(reply)).toHaveLength(20_000);
    expect(await Promise.all(others)).toEqual([[['b']], [['c']]]);
  });

  test('holds up nobody, however slowly it is read', async () => {
    const [reply, others] = await behindLarge();
    expect(await soon(Promise.all(others))).toEqual([[['b']], [['c']]]);
    expect(await rowsOf(reply)).toHaveLength(20_000);
  });

  test('holds up nobody when its reader goes', async () => {
    const [reply, others] = await behindLarge();
    await soon(Promise.all(others));
    (reply.body as Readable).destroy();
    await expect(soon(reply.done)).rejects.toMatchObject({ kind: 'query_canceled' });
    await expectHealthy();
  });

  test('holds up nobody when its reader goes at once', async () => {
    const [reply, others] = await behindLarge();
    (reply.body as Readable).destroy();
    expect(await soon(Promise.all(others))).toEqual([[['b']], [['c']]]);
    await soon(reply.done.catch(() => {}));
    await expectHealthy();
  });
});

test('a result that cannot be written takes its backend with it, and nobody who comes along', async () => {
  await desk.warmUp([ECHO, ['']]);
  const fail = () => {
    throw new Error('it cannot be written');
  };
  const format = { ...jsonFormat('array'), rows: () => Object.assign(fail, { inParts: fail }) };
  await expect(desk.rows(ECHO, ['a'], { format })).rejects.toThrow('it cannot be written');
  const { backend } = desk;
  expect(await desk.rows(ECHO, ['b'])).toEqual([['b']]);
  expect(desk.backend).not.toBe(backend);
  await desk.warmUp([ECHO, ['']]);
  expect(await Promise.allSettled(await desk.together(echo('a', { format }), echo('b'), echo('c')))).toMatchObject([
    { reason: { message: 'it cannot be written' } },
    { value: [['b']] },
    { value: [['c']] },
  ]);
});

test('a row that is too large is refused, and harms nobody who comes along', async () => {
  await desk.warmUp([ECHO, ['']], [HUGE, [1]]);
  await expect(desk.rows(HUGE, [2])).rejects.toMatchObject({ kind: 'response_too_large' });
  await eventually('the backend is given back', isAtRest);
  const { backend } = desk;
  expect(await desk.rows(ECHO, ['after'])).toEqual([['after']]);
  expect(desk.backend).toBe(backend);
  const answers = await desk.together(() => desk.rows(HUGE, [2]), echo('b'));
  expect(await Promise.allSettled(answers)).toMatchObject([{ reason: { kind: 'response_too_large' } }, { value: [['b']] }]);
});

describe('what never shares', () => {
  test.each([
    ['SET', "SET LOCAL application_name = 'x'"],
    ['DDL', 'CREATE TABLE IF NOT EXISTS large (n int)'],
    ['a write', 'UPDATE guarded SET n = 7'],
    ['a volatile function', 'SELECT random() > 2 AS v'],
    ['a sequence', "SELECT nextval('s')"],
    ['a function of their own', 'SELECT own(1)'],
    ['a function of their own, named after another', 'SELECT lower$1(1), älower(1)'],
    ['a lock', 'SELECT n FROM guarded FOR UPDATE'],
  ])('%s', async (_, sql) => {
    await database.asOwner(`
      CREATE SEQUENCE IF NOT EXISTS s;
      CREATE OR REPLACE FUNCTION own(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
      CREATE OR REPLACE FUNCTION lower$1(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
      CREATE OR REPLACE FUNCTION älower(int) RETURNS int LANGUAGE sql AS 'SELECT 1'`);
    for (let i = 0; i < 12; i += 1) await Promise.all([1, 2, 3].map(() => desk.rows(sql)));
    expect(desk.count('request.shared')).toBe(0);
  });

  test('COPY is refused', async () => {
    await expect(desk.run('COPY large TO STDOUT')).rejects.toMatchObject({ kind: 'unsupported_statement' });
  });

  test.each([
    ['what is to be read only', { readOnly: true }],
    ['what has little time', { timeoutMs: 500 }],
  ])('%s', async (_, more) => {
    await desk.warmUp([ECHO, ['']]);
    // However long this takes: nobody's time is up.
    vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (let i = 0; i < 5; i += 1) await Promise.all([1, 2, 3].map(() => desk.rows(ECHO, ['v'], more)));
    expect(desk.count('request.shared')).toBe(0);
  });

  test('where none may', async () => {
    desk = await openDesk({ depth: 1 });
    await desk.warmUp([ECHO, ['']]);
    for (let i = 0; i < 5; i += 1) await Promise.all([1, 2, 3].map(() => desk.rows(ECHO, ['v'])));
    expect(desk.count('request.shared')).toBe(0);
  });
});

test('no more get on than may', async () => {
  await desk.warmUp([ECHO, ['']]);
  const values = Array.from({ length: 3 * DEPTH }, (_, i) => `v${i}`);
  const first = echo('first')();
  for (let i = 0; i < 20; i += 1) await undefined;
  const before = desk.leases;
  expect(await Promise.all(values.map((value) => desk.rows(ECHO, [value])))).toEqual(values.map((value) => [[value]]));
  expect(await first).toEqual([['first']]);
  expect(desk.leases - before).toBeGreaterThan(1);
});

test('a crowd that has begun by waiting for backends shares them all the same', async () => {
  await desk.warmUp([ECHO, ['']]);
  const all = await Promise.all(Array.from({ length: 8 }, () => database.lease()));
  const runs = 20;
  const before = desk.leases;
  // However long a turn takes on a busy machine, it is not too late to get on in the next.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
  const crowd = Array.from({ length: 40 }, async (_, id) => {
    for (let i = 0; i < runs; i += 1) expect(await desk.rows(ECHO, [`${id}.${i}`])).toEqual([[`${id}.${i}`]]);
  });
  await turn();
  await Promise.all(all.map((lease) => lease.release(true)));
  await Promise.all(crowd);
  clock.mockRestore();
  expect(desk.leases - before).toBeLessThan((40 * runs) / 2);
});

test('who waits for a backend is not overtaken by those who could get on', async () => {
  await desk.warmUp([ECHO, ['']]);
  const others = await Promise.all(Array.from({ length: 7 }, () => database.lease()));
  let isOver = false;
  const crowd = Promise.all(
    Array.from({ length: 20 }, async (_, id) => {
      for (let i = 0; !isOver; i += 1) expect(await desk.rows(ECHO, [`${id}.${i}`])).toEqual([[`${id}.${i}`]]);
    }),
  );
  for (let i = 0; i < 20; i += 1) {
    await delay(5);
    const lease = await soon(database.lease());
    await lease?.release(true);
  }
  isOver = true;
  await crowd;
  await Promise.all(others.map((lease) => lease.release(true)));
});

test('where public is a schema of another name, errors and warnings speak of public', async () => {
  await database.asOwner(`
    CREATE SCHEMA org_place;
    CREATE TABLE org_place.things (n int, d int); INSERT INTO org_place.things VALUES (1, 0), (2, 1);
    CREATE FUNCTION org_place.tell(int) RETURNS int LANGUAGE plpgsql AS
      $$ BEGIN IF $1 > 1 THEN RAISE WARNING 'org_place.things has %', $1; END IF; RETURN 10 / $1; END $$;
    CREATE VIEW org_place.telling AS SELECT n, org_place.tell(n) AS told FROM org_place.things`);
  desk = await openDesk({ schema: 'org_place' });
  const telling = 'SELECT told FROM public.telling WHERE n = $1';
  const missing = 'SELECT n FROM public.things WHERE n = $1 AND d::text = $2';
  await desk.warmUp([telling, [1]], [missing, [1, '0']]);
  const documentOf = (n: number) => async () => JSON.parse(String((await desk.run(telling, [n])).body));
  const [told, warned] = await Promise.all(await desk.together(documentOf(1), documentOf(2)));
  expect(told).not.toHaveProperty('warnings');
  expect(warned).toMatchObject({ rows: [[5]], warnings: [{ severity: 'WARNING', message: 'public.things has 2' }] });
  await database.asOwner('ALTER TABLE org_place.things DROP d');
  const answers = await desk.together(documentOf(1), () => desk.rows(missing, [1, '0']));
  expect(await Promise.allSettled(answers)).toMatchObject([
    { value: { rows: [[10]] } },
    { reason: { fields: { code: '42703', position: 46 } } },
  ]);
});

test('what has been answered is not kept', async () => {
  await desk.warmUp([ECHO, ['']], [GUARDED]);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const used = async () => {
    for (let i = 0; i < 1_500; i += 1) {
      await Promise.all(['a', 'b', 'c', 'd'].map((value) => desk.rows(ECHO, [value], { disconnect: new DisconnectSignal() })));
    }
    deadlines.clear();
    // What the spies have seen.
    vi.clearAllMocks();
    collect();
    return process.memoryUsage().heapUsed;
  };
  await used();
  const before = await used();
  expect((await used()) - before).toBeLessThan(1_000_000);
});
