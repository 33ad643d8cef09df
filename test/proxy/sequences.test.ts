import { Client, neonConfig } from '@neondatabase/serverless';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { WebSocket } from 'ws';
import { SequenceValues } from '../../proxy/pins.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

type AnyClient = Pick<pg.Client, 'query' | 'end'>;

/** A sequence's values are the session's own: PostgreSQL keeps them in the backend, while Postern's backends go from one client to the next. */
let service: TestService;
let organization: TestOrganization;
let clients: AnyClient[];
const BACKENDS = 4;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: String(BACKENDS) });
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
  clients = [];
  const client = await one();
  await client.query(
    'CREATE SEQUENCE q; CREATE SEQUENCE other_q; CREATE TABLE notes (id serial, body text); CREATE TABLE plain (body text)',
  );
});
afterEach(async () => {
  await Promise.all(clients.map((client) => client.end()));
});

async function one(): Promise<AnyClient> {
  const client = await service.connect(organization);
  clients.push(client);
  return client;
}

/** As {@link one}, over a WebSocket. */
async function oneByWebSocket(): Promise<AnyClient> {
  const { host } = new URL(service.httpUrl);
  neonConfig.wsProxy = () => `${host}/v2`;
  neonConfig.useSecureWebSocket = false;
  neonConfig.webSocketConstructor = WebSocket;
  const client = new Client(`postgres://${organization.id}:${organization.apiKey}@${host}/${organization.id}`);
  await client.connect();
  clients.push(client);
  return client;
}

const crowd = (count = 10 * BACKENDS, connect = one) => Promise.all(Array.from({ length: count }, connect));

/** All the backends that the organization may have are in transactions until this is called. */
async function occupy(count = BACKENDS): Promise<() => Promise<void>> {
  const busy = await crowd(count);
  await Promise.all(busy.map((client) => client.query('BEGIN')));
  return async () => {
    await Promise.all(busy.map((client) => client.query('COMMIT')));
  };
}

async function pinned(reason = 'sequence'): Promise<number> {
  const metrics = await (await fetch(`${service.opsUrl}/metrics`)).text();
  return Number(new RegExp(`postern_pinned_sessions\\{reason="${reason}"\\} (\\d+)`).exec(metrics)?.[1] ?? 0);
}

/** However slow the machine is: backends are held for those who are going to ask for a value until they do. */
function holdUntilAsked(): void {
  const { rest } = SequenceValues.prototype;
  const spy = vi.spyOn(SequenceValues.prototype, 'rest').mockImplementation(function (this: SequenceValues) {
    const reservation = rest.call(this);
    if (this.heldUntil > 0) this.heldUntil += 60_000;
    return reservation;
  });
  onTestFinished(() => spy.mockRestore());
}

describe('many clients on few backends', () => {
  it.each([
    ['nextval', "SELECT nextval('q') AS v"],
    ['an insert', 'INSERT INTO notes DEFAULT VALUES RETURNING id AS v'],
  ])('are all served by %s', async (_, text) => {
    const all = await crowd();
    const values = await Promise.all(all.map(async (client) => (await client.query(text)).rows[0].v));
    expect(new Set(values).size).toBe(all.length);
    expect(await pinned()).toBe(0);
  });

  it('are served by a prepared nextval, as of Hibernate', async () => {
    const all = await crowd();
    for (let round = 0; round < 3; round += 1) {
      await Promise.all(all.map((client) => client.query({ name: 's1', text: "select nextval('q')" })));
    }
    expect(await pinned()).toBe(0);
  });

  it('are served after one has asked for the last value, and after one has said the word', async () => {
    const [asker, speaker, ...others] = await crowd();
    await asker?.query("SELECT nextval('q')");
    await asker?.query('SELECT lastval()');
    await speaker?.query('SELECT 1 AS lastval');
    await speaker?.query("SELECT nextval('q')");
    await Promise.all(others.map((client) => client.query('INSERT INTO notes DEFAULT VALUES')));
    await Promise.all(others.map((client) => client.query("SELECT nextval('q')")));
    expect(await pinned()).toBeLessThanOrEqual(1);
  });

  it.each([
    ['the wire door', one],
    ['a WebSocket', oneByWebSocket],
  ])('are told the ids of their own rows, if all of them ask at once (%s)', async (_, connect) => {
    holdUntilAsked();
    const all = await crowd(10 * BACKENDS, connect);
    const ids = new Set<string>();
    const insert = async (client: AnyClient, at: number) => {
      for (let round = 0; round < 5; round += 1) {
        await client.query('INSERT INTO notes (body) VALUES ($1)', [`${at}/${round}`]);
        const { rows } = await client.query('SELECT lastval() AS id');
        ids.add(rows[0].id);
        expect((await client.query('SELECT body FROM notes WHERE id = $1', [rows[0].id])).rows).toEqual([{ body: `${at}/${round}` }]);
      }
    };
    // From the second on each knows that it is asked for.
    await insert(await one(), -1);
    await Promise.all(all.map(insert));
    expect(ids.size).toBe(5 * (all.length + 1));
  });

  it('are told so that connect, insert, ask and go', async () => {
    holdUntilAsked();
    const visit = async (_: unknown, at: number) => {
      const client = await service.connect(organization);
      await client.query('INSERT INTO notes (body) VALUES ($1)', [String(at)]);
      const { rows } = await client.query("SELECT currval('notes_id_seq') AS id");
      expect((await client.query('SELECT body FROM notes WHERE id = $1', [rows[0].id])).rows).toEqual([{ body: String(at) }]);
      await client.end();
    };
    await visit(undefined, -1);
    await Promise.all(Array.from({ length: 10 * BACKENDS }, visit));
  });
});

describe('a session', () => {
  it('finds its values again after others have been served', async () => {
    const [asker, ...others] = await crowd(3 * BACKENDS);
    // All backends are open: where the server has no room for one more, a reserved one is given away.
    await (await occupy())();
    await asker?.query('SELECT lastval()').catch(() => {});
    const { rows } = (await asker?.query("SELECT nextval('q') AS v")) ?? { rows: [] };
    for (const other of others) await other.query("SELECT nextval('q')");
    expect((await asker?.query("SELECT lastval() AS v, currval('q') AS c"))?.rows).toEqual([{ v: rows[0].v, c: rows[0].v }]);
    expect(await pinned()).toBe(1);
    await asker?.end();
    await expect.poll(() => pinned()).toBe(0);
  });

  it('gives its backend to one that needs it, and is told no value then', async () => {
    const asker = await one();
    await asker.query("SELECT nextval('q')");
    await asker.query('SELECT lastval()');
    await asker.query("SELECT nextval('q')");
    const done = await occupy();
    await done();
    expect(await pinned()).toBe(0);
    await expect(asker.query('SELECT lastval()')).rejects.toMatchObject({ code: '55000' });
    const { rows } = await asker.query("SELECT nextval('q') AS v");
    expect((await asker.query('SELECT lastval() AS v')).rows).toEqual(rows);
  });

  it('gives the oldest of such backends up first', async () => {
    const askers = await crowd(BACKENDS);
    const last: string[] = [];
    for (const asker of askers) {
      await asker.query("SELECT nextval('q')");
      await asker.query('SELECT lastval()');
    }
    for (const asker of askers) last.push((await asker.query("SELECT nextval('q') AS v")).rows[0].v);
    const done = await occupy(1);
    const answers = await Promise.allSettled(askers.slice(1).map((asker) => asker.query('SELECT lastval() AS v')));
    expect(answers.map((answer) => (answer.status === 'fulfilled' ? answer.value.rows[0].v : answer.reason.code))).toEqual(last.slice(1));
    await expect(askers[0]?.query('SELECT lastval()')).rejects.toMatchObject({ code: '55000' });
    await done();
  });
});

describe("another session's value is never told", () => {
  /** Through one backend, after somebody else. */
  const after = async (...texts: string[]) => {
    const [drawer, reader] = [await one(), await one()];
    const done = await occupy(BACKENDS - 1);
    await drawer.query("INSERT INTO notes DEFAULT VALUES; SELECT nextval('other_q')");
    await drawer.query('SELECT 1');
    try {
      for (const text of texts.slice(0, -1)) await reader.query(text);
      return await reader.query({ text: texts.at(-1) ?? '', rowMode: 'array' }).then(
        ({ rows }) => rows,
        ({ code }) => code,
      );
    } finally {
      await reader.query('ROLLBACK');
      await done();
    }
  };

  it.each([
    [['SELECT lastval()']],
    [['SELECT 1', 'SELECT lastval()']],
    [['BEGIN', 'SELECT lastval()']],
    [['BEGIN', 'SELECT 1', 'SELECT "lastval"()']],
    [['INSERT INTO plain DEFAULT VALUES', 'SELECT lastval()']],
    [['INSERT INTO plain DEFAULT VALUES', 'SELECT 1', 'SELECT lastval()']],
    [["SELECT nextval('q')", "SELECT currval('notes_id_seq')"]],
    [['BEGIN', "SELECT nextval('q')", "SELECT currval('notes_id_seq')"]],
    [['DO $$ BEGIN PERFORM 1; END $$', 'DO $$ BEGIN PERFORM lastval(); END $$']],
  ])('%j', async (texts) => {
    expect(await after(...texts)).toBe('55000');
  });

  it('nor amid a pipeline', async () => {
    const sql = service.sql(organization, { max: 1 });
    const drawer = await one();
    const done = await occupy(BACKENDS - 1);
    await sql`SELECT 1`;
    await drawer.query('INSERT INTO notes DEFAULT VALUES');
    const answers = await Promise.allSettled([sql`SELECT 1 AS a`, sql`SELECT lastval()`, sql`SELECT 2 AS b`]);
    expect(answers.map((answer) => (answer.status === 'fulfilled' ? answer.value[0] : answer.reason.code))).toEqual([
      { a: 1 },
      '55000',
      { b: 2 },
    ]);
    await done();
    await sql.end();
  });

  it('while a transaction that reads its own is not disturbed', async () => {
    const [drawer, reader] = [await one(), await one()];
    const done = await occupy(BACKENDS - 1);
    await drawer.query('INSERT INTO notes DEFAULT VALUES');
    await reader.query('BEGIN');
    await reader.query("INSERT INTO notes (body) VALUES ('mine')");
    const { rows } = await reader.query('SELECT body FROM notes WHERE id = lastval()');
    expect(rows).toEqual([{ body: 'mine' }]);
    await reader.query('COMMIT');
    await done();
  });
});

describe('who gets no backend', () => {
  it('is told how many sessions keep theirs, and why', async () => {
    const hasty = await startTestService({ POSTERN_BACKENDS_PER_TENANT: String(BACKENDS), POSTERN_QUEUE_TIMEOUT_MS: '10000' });
    const own = await hasty.signUp();
    const all = await Promise.all(Array.from({ length: BACKENDS + 1 }, () => hasty.connect(own)));
    const [waiting, ...holders] = all;
    await Promise.all(holders.map((client, at) => client.query(at === 0 ? 'CREATE TEMP TABLE t ()' : `LISTEN c${at}`)));
    const refused = waiting?.query('SELECT 1');
    await expect(refused).rejects.toMatchObject({ code: '53300', detail: expect.stringContaining(`${BACKENDS} of ${BACKENDS}`) });
    await expect(refused).rejects.toMatchObject({ detail: expect.stringMatching(/listen 3, temp 1/) });
    await Promise.all(all.map((client) => client.end()));
    await hasty.close();
  });
});
