import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import type { TestOrganization } from '../support/service.ts';
import { needDebian } from './debian.ts';
import { KEPT, TwoServers } from './moves/two-servers.ts';
import { Writers } from './moves/writers.ts';

let servers: TwoServers;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  servers = await TwoServers.start();
});
afterEach(() => servers.endMovers());
afterAll(() => servers.stop());

const query = (organization: TestOrganization, sql: string) => servers.services[0].query(organization, sql);

async function run(organization: TestOrganization, ...statements: string[]): Promise<void> {
  for (const sql of statements) expect([sql, (await query(organization, sql)).status]).toEqual([sql, 200]);
}

/** A slot by which a subscription that is not of a move copies a table. */
const FOREIGN = 'pg_99999_sync_16385_7000000000000000001';

/** At the new server, a row with the number of a gate waits until the gate is open. */
const GATES = { first: 1, later: 2, unkeyed: 3 } as const;

async function makeOrganization(): Promise<TestOrganization> {
  const acme = await servers.services[0].signUp();
  await run(
    acme,
    `CREATE FUNCTION gate(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
       IF n > 0 AND current_setting('server_version_num')::int >= 160000 THEN PERFORM pg_catalog.pg_advisory_xact_lock_shared(n); END IF;
       RETURN true; END $$`,
    'CREATE TABLE first (n int PRIMARY KEY CHECK (public.gate(n)))',
    'CREATE TABLE later (n int PRIMARY KEY CHECK (public.gate(n)), filler text)',
    'CREATE TABLE unkeyed (n int CHECK (public.gate(n)))',
    `INSERT INTO first VALUES (${GATES.first})`,
    `INSERT INTO unkeyed VALUES (${GATES.unkeyed})`,
  );
  return acme;
}

/** A move on its way, and what holds it. */
class HeldMove {
  readonly acme: TestOrganization;
  readonly holders: pg.Client[] = [];
  readonly #gates: pg.Client;

  constructor(acme: TestOrganization, gates: pg.Client) {
    this.acme = acme;
    this.#gates = gates;
    this.holders.push(gates);
  }

  close(gate: keyof typeof GATES): Promise<unknown> {
    return this.#gates.query('SELECT pg_advisory_lock($1)', [GATES[gate]]);
  }

  open(gate: keyof typeof GATES): Promise<unknown> {
    return this.#gates.query('SELECT pg_advisory_unlock($1)', [GATES[gate]]);
  }

  /** Resolves when a session of this kind waits at a gate. */
  waits(column: 'backend_type' | 'application_name', value: string): Promise<void> {
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = $1 AND ${column} = $2 AND wait_event = 'advisory'`;
    return eventually(`${value} waits`, async () => (await servers.look('target', waiting, [this.acme.id, value])).length > 0);
  }

  /** Resolves when the copy of a table is so far. */
  isAt(table: string, state: string): Promise<void> {
    const found = `SELECT FROM pg_subscription_rel JOIN pg_class c ON c.oid = srrelid WHERE c.relname = $1 AND srsubstate = $2`;
    return eventually(
      `${table} is at ${state}`,
      async () => (await servers.look('target', found, [table, state], this.acme.id)).length > 0,
    );
  }

  /** Resolves when a session of the mover has locked a table at the former server, or waits for that. */
  locks(table: string, isGranted: boolean): Promise<void> {
    const locks = `SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
      WHERE a.application_name = 'postern move' AND l.relation = to_regclass($1) AND l.granted = $2`;
    return eventually(`a lock on ${table}`, async () => (await servers.look('source', locks, [table, isGranted], this.acme.id)).length > 0);
  }

  recorded(what: string, sql: string): Promise<void> {
    return eventually(what, async () => (await servers.record(sql, this.acme)).length > 0);
  }

  async control(...statements: string[]): Promise<void> {
    const holder = await servers.control();
    this.holders.push(holder);
    for (const statement of statements) await holder.query(statement.replace('$1', `'${this.acme.id}'`));
  }

  async release(): Promise<void> {
    for (const holder of this.holders) await holder.end();
  }
}

const SYNC = 'logical replication tablesync worker';
const APPLY = 'logical replication apply worker';

/** Brings a move there, from where no row has been copied. */
const STAGES: Readonly<Record<string, (move: HeldMove) => Promise<void>>> = {
  'while it copies rows at first': async (move) => {
    await move.close('first');
    await servers.setCopying(true);
    await move.waits('backend_type', SYNC);
  },
  'while the copy catches up': async (move) => {
    await move.close('first');
    await move.close('later');
    await servers.setCopying(true);
    await move.isAt('later', 'r');
    await run(move.acme, `INSERT INTO later VALUES (${GATES.later}, repeat('x', 2000000))`);
    await move.waits('backend_type', APPLY);
    await move.open('first');
    await move.isAt('first', 'f');
  },
  'in the first pause': async (move) => {
    await move.close('first');
    await move.close('later');
    await servers.setCopying(true);
    await move.isAt('later', 'r');
    await move.control('BEGIN', 'SELECT FROM postern.organizations WHERE id = $1 FOR UPDATE');
    await move.open('first');
    await move.recorded(
      'the beginning of the pause',
      `SELECT FROM pg_stat_activity a JOIN postern.organizations o ON o.id = $1
       WHERE a.wait_event_type = 'Lock' AND a.application_name = 'postern control' AND a.query ~ 'postern.organizations'`,
    );
    // Until it is applied, the pause lasts and the tables are locked.
    await run(move.acme, `INSERT INTO later VALUES (${GATES.later})`);
    await move.waits('backend_type', APPLY);
    await move.holders.pop()?.end();
    await move.locks('first', true);
  },
  'in the last pause': async (move) => {
    await move.close('unkeyed');
    await servers.setCopying(true);
    await move.waits('application_name', 'postern move');
  },
  'before the switch': async (move) => {
    // With an open transaction at the former server no copy of a table would begin.
    await STAGES['in the last pause']?.(move);
    await move.control('BEGIN', 'SELECT FROM postern.moves WHERE organization_id = $1 FOR UPDATE');
    await move.open('unkeyed');
    await move.recorded(
      'the switch',
      `SELECT FROM pg_stat_activity a JOIN postern.organizations o ON o.id = $1
       WHERE a.wait_event_type = 'Lock' AND a.application_name = 'postern control' AND a.query ~ 'postern.moves'`,
    );
  },
};

/** Begins a move that waits before any row is copied. */
async function startHeld(acme: TestOrganization) {
  await servers.setCopying(false);
  const { mover, ended } = servers.startMover(acme);
  await servers.published(acme);
  return { mover, ended, move: new HeldMove(acme, await servers.superuser('target', acme.id)) };
}

describe('a mover between two servers that is killed', () => {
  it.each(Object.entries(STAGES))('%s leaves what the service undoes once, and the slots of others', async (_name, reach) => {
    const acme = await makeOrganization();
    await servers.look('source', "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [FOREIGN], acme.id);
    const writers = await Writers.start(servers.services[0], acme, 'PRIMARY KEY');
    await writers.writeSome();
    const { mover, ended, move } = await startHeld(acme);
    await reach(move);
    mover.kill('SIGKILL');
    await ended;
    await move.release();
    await writers.writeSome();
    await writers.stop();
    await eventually(
      'the move is undone',
      async () => (await servers.record('SELECT FROM postern.moves WHERE organization_id = $1', acme)).length === 0,
    );
    await eventually('a process has told so', () => servers.timesUndone(acme) > 0);
    expect(servers.timesUndone(acme)).toBe(1);
    expect(await servers.leftovers(acme)).toEqual([FOREIGN]);
    await servers.look('source', 'SELECT pg_drop_replication_slot($1)', [FOREIGN]);
    expect(await servers.look('target', 'SELECT FROM pg_database WHERE datname = $1', [acme.id])).toEqual([]);
    expect(await servers.clusterOf(acme)).toBe('default');
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
  });

  it('after the switch has moved the organization', async () => {
    const acme = await makeOrganization();
    const writers = await Writers.start(servers.services[0], acme, 'PRIMARY KEY');
    await writers.writeSome();
    const { mover, ended, move } = await startHeld(acme);
    await move.close('unkeyed');
    await servers.setCopying(true);
    await move.waits('application_name', 'postern move');
    // Its roles cannot be closed.
    await move.control(`BEGIN; ALTER ROLE ${acme.id} CONNECTION LIMIT 100`);
    await move.open('unkeyed');
    await move.recorded('the switch', 'SELECT FROM postern.moves WHERE organization_id = $1 AND has_switched');
    mover.kill('SIGKILL');
    await ended;
    await move.release();
    await writers.writeSome();
    await writers.stop();
    expect(await servers.clusterOf(acme)).toBe('other');
    expect(await servers.look('source', 'SELECT FROM pg_replication_slots')).toEqual([]);
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    expect(await servers.admin('org', 'move', acme.id, '--finish')).toMatchObject({ code: 0, stderr: '' });
    expect(await servers.leftovers(acme)).toEqual([]);
    expect(await servers.look('source', 'SELECT FROM pg_database WHERE datname = $1', [acme.id])).toEqual([]);
    expect(servers.timesUndone(acme)).toBe(0);
  });

  it('keeps no WAL at the former server while the new one is down', async () => {
    const acme = await makeOrganization();
    const { mover, ended, move } = await startHeld(acme);
    await STAGES['while it copies rows at first']?.(move);
    mover.kill('SIGKILL');
    await ended;
    await move.release();
    await servers.target.stop();
    await eventually('the slots are gone', async () => (await servers.look('source', 'SELECT FROM pg_replication_slots')).length === 0);
    expect(servers.timesUndone(acme)).toBe(0);
    await servers.target.start();
    await eventually('the move is undone', () => servers.timesUndone(acme) === 1);
    expect(await servers.leftovers(acme)).toEqual([]);
  });
});

describe('a move between two servers', () => {
  it('goes on when a table is truncated while tables are compared', async () => {
    const acme = await makeOrganization();
    await run(acme, 'CREATE TABLE cut (n int PRIMARY KEY)', 'INSERT INTO cut SELECT generate_series(1, 1000)');
    const { ended, move } = await startHeld(acme);
    await STAGES['in the first pause']?.(move);
    const here = await servers.superuser('source', acme.id);
    move.holders.push(here);
    await here.query('BEGIN');
    const locked = here.query('LOCK TABLE first IN ACCESS EXCLUSIVE MODE');
    await eventually('the lock is next', async () => (await servers.look('source', 'SELECT FROM pg_locks WHERE NOT granted')).length > 0);
    await move.open('later');
    await locked;
    await move.locks('first', false);
    // The copy is truncated only after it has been compared.
    await move.close('unkeyed');
    await run(acme, `INSERT INTO later VALUES (${GATES.unkeyed})`, 'TRUNCATE cut', 'INSERT INTO cut VALUES (5000)');
    await here.query('COMMIT');
    await move.recorded('the last pause', 'SELECT FROM postern.organizations WHERE id = $1 AND paused_until IS NOT NULL');
    await move.release();
    expect(await ended).toEqual({ code: 0, stderr: '' });
    expect(await servers.clusterOf(acme)).toBe('other');
    expect((await query(acme, 'SELECT n FROM cut')).body.rows).toEqual([{ n: 5000 }]);
    expect((await query(acme, 'SELECT n FROM later ORDER BY n')).body.rows).toEqual([{ n: GATES.later }, { n: GATES.unkeyed }]);
  });

  it('ends when the former server has removed the WAL that it needs', async () => {
    const acme = await makeOrganization();
    const { ended, move } = await startHeld(acme);
    await STAGES['while the copy catches up']?.(move);
    await servers.set('source', "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'");
    try {
      for (let segments = 0; segments < 4; segments += 1)
        await servers.look('source', "SELECT pg_logical_emit_message(false, 'postern', 'a segment'), pg_switch_wal()");
      await servers.look('source', 'CHECKPOINT');
      await move.release();
      expect(await ended).toEqual({
        code: 1,
        stderr: 'postern: the replication has stopped: the former server keeps less WAL for it (max_slot_wal_keep_size)\n',
      });
    } finally {
      await servers.set('source', KEPT);
    }
    await eventually('nothing is left', async () => (await servers.leftovers(acme)).length === 0);
    expect(await servers.clusterOf(acme)).toBe('default');
  });

  it('warns of a server that keeps any amount of WAL', async () => {
    const acme = await servers.services[0].signUp();
    await servers.set('source', "ALTER SYSTEM SET max_slot_wal_keep_size = '-1'");
    try {
      expect(await servers.admin('org', 'move', acme.id, '--to', 'other', '--replicate')).toMatchObject({
        code: 0,
        stderr: expect.stringMatching(
          /^postern: warning: default keeps all WAL until the move has ended, .*: max_slot_wal_keep_size is -1\n$/,
        ),
      });
    } finally {
      await servers.set('source', KEPT);
    }
  });
});
