import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Catalog } from '../../../src/catalog/catalog.ts';
import { ControlPool } from '../../../src/catalog/control-pool.ts';
import { CATALOG_MIGRATIONS, CatalogMigrationError, migrate } from '../../../src/catalog/migrations.ts';
import { newKey, openCatalog, TestControlDatabase } from './control-database.ts';

let database: TestControlDatabase;
let control: ControlPool;

beforeAll(async () => {
  database = await TestControlDatabase.create();
  const control = new ControlPool(database.connection);
  await control.run((sql) => sql`create table public.notes (text text)`);
  await control.close();
});

beforeEach(() => {
  control = new ControlPool(database.connection);
});

afterEach(async () => {
  await control.close();
});

afterAll(async () => {
  await database.drop();
});

const notes = async () => (await database.query<{ text: string }>('select text from public.notes')).map(({ text }) => text);

describe('the control database', () => {
  test('has an empty search path', async () => {
    expect(await control.run((sql) => sql`show search_path`)).toEqual([{ search_path: '' }]);
    await expect(control.run((sql) => sql`select * from notes`)).rejects.toMatchObject({ code: '42P01' });
  });

  test('serves many calls over four sessions', async () => {
    const calls = Array.from({ length: 500 }, () => control.run((sql) => sql<{ pid: number }[]>`select pg_backend_pid() as pid`));
    const pids = (await Promise.all(calls)).map(([row]) => row?.pid);
    expect(new Set(pids).size).toBe(4);
  });

  test('serves low-priority callers when nobody else waits', async () => {
    const order: string[] = [];
    const busy = Array.from({ length: 4 }, () => control.run((sql) => sql`select pg_sleep(0.2)`));
    const lowPriority = Array.from({ length: 8 }, () => control.lowPriorityTransaction(async () => order.push('patient')));
    const others = Array.from({ length: 8 }, () => control.run(async () => order.push('other')));
    await Promise.all([...busy, ...lowPriority, ...others]);
    expect(order).toEqual([...Array(8).fill('other'), ...Array(8).fill('patient')]);
  });

  test('serves organizations in turn, one change of each at a time, and always others', async () => {
    const order: string[] = [];
    let atOnce = 0;
    let most = 0;
    const changeOf = (organization: string) =>
      control.changeFor(organization, async (sql) => {
        atOnce += organization === 'greedy' ? 1 : 0;
        most = Math.max(most, atOnce);
        await sql`select pg_sleep(0.02)`;
        atOnce -= organization === 'greedy' ? 1 : 0;
        order.push(organization);
      });
    const greedy = Array.from({ length: 50 }, () => changeOf('greedy'));
    const reads = Array.from({ length: 50 }, () => control.readFor('greedy', (sql) => sql`select pg_sleep(0.02)`));
    // These come last, and do not wait for the rest.
    await Promise.all([
      changeOf('modest'),
      control.readFor('modest', (sql) => sql`select`),
      control.run((sql) => sql`select`),
      control.lowPriorityTransaction(async () => {}),
    ]);
    expect(order.indexOf('modest')).toBeLessThan(10);
    expect(order.length).toBeLessThan(25);
    await Promise.all([...greedy, ...reads]);
    expect(most).toBe(1);
  });

  test('refuses calls of an organization that has too many, and not those of others', async () => {
    const calls = Array.from({ length: 502 }, () =>
      control
        .changeFor('greedy', async () => {})
        .then(
          () => 'served',
          ({ kind }) => kind,
        ),
    );
    expect(await control.changeFor('modest', async () => 'served')).toBe('served');
    expect((await Promise.all(calls)).filter((one) => one !== 'served')).toEqual(['too_many_requests']);
  });

  test('keeps all of a transaction or nothing', async () => {
    await control.transaction((sql) => sql`insert into public.notes values ('kept')`);
    const failing = control.transaction(async (sql) => {
      await sql`insert into public.notes values ('lost')`;
      await sql`select 1 / 0`;
    });
    await expect(failing).rejects.toMatchObject({ code: '22012' });
    const throwing = control.transaction(async (sql) => {
      await sql`insert into public.notes values ('lost too')`;
      throw new Error('no');
    });
    await expect(throwing).rejects.toThrow('no');
    expect(await notes()).toEqual(['kept']);
  });

  test('does not continue a transaction whose connection is lost, busy or idle', async () => {
    const working = control.transaction(async (sql) => {
      await sql`insert into public.notes values ('half')`;
      await Promise.all([sql`select pg_sleep(60)`, database.terminate('postern control')]);
    });
    await expect(working).rejects.toMatchObject({ kind: 'not_ready' });
    const idle = control.transaction(async (sql) => {
      await sql`insert into public.notes values ('half')`;
      await database.terminate('postern control');
      await expect.poll(() => sqlFails(() => sql`insert into public.notes values ('other half')`)).toBe(true);
      await sql`insert into public.notes values ('rest')`;
    });
    await expect(idle).rejects.toMatchObject({ kind: 'not_ready' });
    expect(await notes()).toEqual(['kept']);
    expect(await control.run((sql) => sql`select 1 as one`)).toEqual([{ one: 1 }]);
  });

  test('gives up a call that takes too long, and serves those waiting for a session', async () => {
    const slow = Array.from({ length: 4 }, () => control.run((sql) => sql`select pg_sleep(60)`, 200));
    const waiting = control.run((sql) => sql`select 1 as one`);
    for (const call of slow) await expect(call).rejects.toMatchObject({ kind: 'not_ready', message: expect.stringContaining('in time') });
    expect(await waiting).toEqual([{ one: 1 }]);
    const late = control.run((sql) => sql`select pg_sleep(60)`, 200);
    await expect(late).rejects.toMatchObject({ kind: 'not_ready' });
  });

  test('that cannot be reached, or hangs up, is not ready', async () => {
    const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const hangsUp = new ControlPool({ ...database.connection, host: '127.0.0.1', port });
    await expect(hangsUp.run((sql) => sql`select 1`)).rejects.toMatchObject({ kind: 'not_ready' });
    await hangsUp.close();
    server.close();
    // The port that was closed may be another test's by now.
    const nobody = new ControlPool({ ...database.connection, host: '127.0.0.1', port: 1 });
    await expect(nobody.run((sql) => sql`select 1`)).rejects.toMatchObject({ kind: 'not_ready', cause: { code: 'ECONNREFUSED' } });
    await nobody.close();
    const wrong = new ControlPool({ ...database.connection, database: 'nowhere' });
    await expect(wrong.run((sql) => sql`select 1`)).rejects.toMatchObject({ kind: 'not_ready', cause: { code: '3D000' } });
    await wrong.close();
  });

  test('that takes no writes is not ready, and asked anew by another session', async () => {
    const processId = () => control.run(async (sql) => sql<{ pid: number }[]>`select pg_backend_pid() as pid`);
    const write = () => control.run((sql) => sql`update public.notes set text = text`);
    const { database: name } = database.connection;
    await database.query(`alter database ${name} set default_transaction_read_only = on`);
    const before = await processId();
    await expect(write()).rejects.toMatchObject({ kind: 'not_ready', cause: { code: '25006' } });
    expect(await processId()).not.toEqual(before);
    await database.query('set default_transaction_read_only = off');
    await database.query(`alter database ${name} reset default_transaction_read_only`);
    await control.close();
    control = new ControlPool(database.connection);
    await write();
  });

  test('takes no calls once it is closed, and lets those end that are running', async () => {
    const running = control.run((sql) => sql`select pg_sleep(0.1), 1 as one`);
    const closed = control.close();
    await expect(control.run((sql) => sql`select 1`)).rejects.toMatchObject({ kind: 'shutting_down' });
    expect(await running).toMatchObject([{ one: 1 }]);
    await closed;
  });
});

describe('migrations', () => {
  test('are applied once, by whichever process comes first', async () => {
    const opened = await Promise.all([1, 2, 3].map(() => openCatalog(database)));
    const ledger = await database.query<{ name: string }>('select name from postern.migrations order by position');
    expect(ledger.map(({ name }) => name)).toEqual(CATALOG_MIGRATIONS.map(({ name }) => name));
    for (const { catalog } of opened) await catalog.close();
    const again = await openCatalog(database);
    expect(await again.catalog.organizations.list()).toEqual([]);
    await again.catalog.close();
  });

  test('give a key of an earlier version a name, all rights and a place among others', async () => {
    const several = CATALOG_MIGRATIONS.findIndex(({ name }) => name === '008 several keys');
    await database.query('drop schema postern cascade');
    await migrate(control, CATALOG_MIGRATIONS.slice(0, several));
    const [live, former] = [newKey(), newKey()];
    await database.query(`insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
      values ('org_000000000old', 'Old', 'a@old.test', 'a@old.test', 'active', 1, '{"kind": "database", "cluster": "default",
        "database": "org_000000000old", "schema": "public", "role": "org_000000000old"}', '2024-01-01')`);
    for (const [{ id, prefix, digest, verifier }, revokedAt] of [
      [former, '2024-02-01'],
      [live, null],
    ] as const) {
      const { iterations, salt, storedKey, serverKey } = verifier;
      await database.query(
        `insert into postern.api_keys (id, organization_id, prefix, digest, scram_iterations, scram_salt, scram_stored_key,
           scram_server_key, created_at, revoked_at) values ($1, 'org_000000000old', $2, $3, $4, $5, $6, $7, '2024-01-01', $8)`,
        [id, prefix, digest, iterations, salt, storedKey, serverKey, revokedAt],
      );
    }

    const { catalog } = await openCatalog(database);
    const known = await catalog.findByOrganization('org_000000000old');
    expect(known?.salt).toEqual({ salt: live.verifier.salt, iterations: live.verifier.iterations });
    expect(known?.live).toMatchObject([
      { key: { id: live.id, name: 'first key', scope: 'admin', expiresAt: null, networks: null, verifier: live.verifier } },
    ]);
    expect(await catalog.findByDigest(live.digest)).toBe(known?.live[0]);
    expect(await catalog.findByDigest(former.digest)).toMatchObject({ id: former.id, endedAt: new Date('2024-02-01') });
    await catalog.close();
  });

  test('that were applied must be those that are known', async () => {
    const [first, ...rest] = CATALOG_MIGRATIONS;
    if (first === undefined) throw new Error('no migrations');
    await migrate(control);
    await expect(migrate(control, [first])).rejects.toThrow(/newer version.*002 signup attempts/);
    await expect(migrate(control, [{ ...first, sql: 'select 1' }, ...rest])).rejects.toThrow(CatalogMigrationError);
    await expect(migrate(control, [{ ...first, name: 'other' }, ...rest])).rejects.toThrow('001 organizations and keys');
  });

  test('are applied all or none', async () => {
    const broken = [
      ...CATALOG_MIGRATIONS,
      { name: '900 fine', sql: 'create table postern.fine ()' },
      { name: '901 broken', sql: 'create tabel x' },
    ];
    await expect(migrate(control, broken)).rejects.toMatchObject({ code: '42601' });
    expect(await database.query(`select 1 from pg_tables where tablename = 'fine'`)).toEqual([]);
    expect(await database.query(`select 1 from postern.migrations where name like '90%'`)).toEqual([]);
  });

  test('keep a catalog from opening that cannot be used', async () => {
    await database.query(`update postern.migrations set checksum = 'x' where position = 1`);
    await expect(openCatalog(database)).rejects.toThrow(CatalogMigrationError);
    const nowhere = { ...database.connection, port: 1 };
    await expect(Catalog.open({ connection: nowhere, observe: () => {}, auditDays: 90 })).rejects.toMatchObject({ kind: 'not_ready' });
  });
});

async function sqlFails(statement: () => Promise<unknown>): Promise<boolean> {
  try {
    await statement();
    return false;
  } catch {
    return true;
  }
}
