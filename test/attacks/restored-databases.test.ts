import { execFile } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Observation } from '../../src/observation.ts';
import { Platform } from '../../src/placement/cluster.ts';
import { prepareCluster } from '../../src/placement/cluster-setup.ts';
import { ProvisionerByKind } from '../../src/placement/provisioner-by-kind.ts';
import type { TestCluster } from '../support/cluster.setup.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { startPostgres18 } from '../support/postgres18.ts';
import { makeScratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENTS, startTestService, TEST_SECRET, type TestOrganization, type TestService } from '../support/service.ts';

const run = promisify(execFile);

type Kind = (typeof PLACEMENTS)[number];
type Server = TestCluster & { stop(): Promise<void> };

/** What is taken from all organizations. */
const CLOSED = [
  'SELECT count(*) FROM pg_lock_status()',
  'SELECT count(*) FROM pg_stat_get_activity(NULL)',
  'SELECT count(*) FROM pg_stat_bgwriter',
  'SELECT pg_control_system()',
  "SELECT pg_logical_emit_message(false, 'a', 'b')",
  'SELECT pg_blocking_pids(1)',
  "SELECT xpath('/a', '<a/>')",
];

async function query<Row extends object>(login: pg.ClientConfig, sql: string): Promise<Row[]> {
  const client = new pg.Client(login);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

interface Inhabitants {
  readonly owner: TestOrganization;
  readonly reader: TestOrganization;
  readonly other: TestOrganization;
}

async function settle(service: TestService): Promise<Inhabitants> {
  const [owner, other] = [await service.signUp(), await service.signUp()];
  const client = await service.connect(owner);
  await client.query("CREATE TABLE seen AS SELECT 1 AS id; CREATE TABLE hidden AS SELECT 'secret' AS body");
  const { body } = await service.call('POST', '/api/keys', { key: owner.apiKey, body: { name: 'agent', scope: 'read' } });
  await client.query(`REVOKE SELECT ON hidden FROM "${owner.id}_read"`);
  await client.end();
  return { owner, other, reader: { ...owner, apiKey: body.apiKey } };
}

/** What an organization must not do, and still can do, whatever its database has been through. */
async function attack(service: TestService, kind: Kind, { owner, other, reader }: Inhabitants): Promise<void> {
  const code = async (organization: TestOrganization, sql: string) => (await service.query(organization, sql)).body.sqlstate ?? '00000';
  for (const sql of CLOSED) for (const who of [owner, reader]) expect([sql, await code(who, sql)]).toEqual([sql, '42501']);
  for (const sql of ['CREATE TEMPORARY TABLE mine ()', 'SELECT lo_create(0)', 'SELECT * FROM hidden'])
    expect([sql, await code(reader, sql)]).toEqual([sql, '42501']);
  expect((await service.query(reader, 'SELECT id FROM seen')).body.rows).toEqual([{ id: 1 }]);
  expect(await code(owner, 'CREATE TEMPORARY TABLE mine ()')).toBe('00000');
  expect(await code(owner, 'SELECT lo_create(0)')).toBe('00000');
  const [one, two] = [await service.connect(owner), await service.connect(other)];
  if (kind === 'schema') {
    for (const sql of [
      'SELECT lo_create(12345)',
      "SELECT lo_from_bytea(12345, 'x')",
      'SELECT count(*) FROM postern_pg_stat_activity',
      'SELECT * FROM postern_pg_stats',
    ])
      expect([sql, await code(owner, sql)]).toEqual([sql, '42501']);
    expect((await one.query('SELECT DISTINCT usename FROM pg_stat_activity')).rows).toEqual([{ usename: owner.id }]);
    expect((await one.query(`SELECT FROM pg_stats WHERE schemaname <> '${owner.id}'`)).rows).toEqual([]);
    await two.query('SELECT pg_advisory_lock(7); LISTEN news');
    expect((await one.query('SELECT pg_try_advisory_lock(7) AS taken')).rows).toEqual([{ taken: true }]);
    const heard: string[] = [];
    two.on('notification', ({ payload = '' }) => heard.push(payload));
    await one.query("SELECT pg_notify('news', 'of one')");
    await two.query("SELECT pg_notify('news', 'of two')");
    await two.query('SELECT 1');
    expect(heard).toEqual(['of two']);
  } else {
    const { rows } = await one.query('SELECT DISTINCT usename FROM pg_stat_activity');
    expect(rows).toEqual([{ usename: owner.id }]);
    expect((await one.query('SELECT count(*)::int AS count FROM pg_stat_database')).rows).toEqual([{ count: 1 }]);
  }
  await one.end();
  await two.end();
}

const servers = [{ version: 18, start: startPostgres18 }, ...(hasPostgres15 ? [{ version: 15, start: startPostgres15 }] : [])];

describe.each(servers.flatMap((server) => PLACEMENTS.map((kind) => ({ ...server, kind }))))(
  'on PostgreSQL $version, with a $kind for each organization',
  ({ start, kind }) => {
    const variables = { POSTERN_PLACEMENT: kind, POSTERN_CONTROL_DATABASE: newControlDatabase() };
    let server: Server;
    let service: TestService;
    let inhabitants: Inhabitants;
    let database: string;

    beforeAll(async () => {
      server = await start();
      service = await startTestService({ ...variables, DATABASE_URL: serverUrl(server) });
      inhabitants = await settle(service);
      database = kind === 'schema' ? 'postern_shared' : inhabitants.owner.id;
    });
    afterAll(async () => {
      await service.close();
      await server.stop();
    });

    /**
     * A database as a restore makes it (`pg_restore -C`): PostgreSQL's own catalogs, the comment, and rights as an earlier version granted
     * them. @param more what is in it
     */
    async function restore(more: string): Promise<void> {
      const [found] = await query<{ comment: string | null }>(
        server,
        `SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = '${database}'`,
      );
      await query(server, `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS false`);
      await query(server, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '${database}'`);
      await query(server, `ALTER DATABASE ${database} RENAME TO former_${database}`);
      await query(server, `CREATE DATABASE ${database} TEMPLATE template0 OWNER postern_platform`);
      const { owner } = inhabitants;
      const rights =
        kind === 'schema'
          ? `GRANT CONNECT, TEMPORARY ON DATABASE ${database} TO PUBLIC`
          : `REVOKE ALL ON DATABASE ${database} FROM PUBLIC; GRANT ALL ON DATABASE ${database} TO "${owner.id}"; GRANT CONNECT, TEMPORARY ON DATABASE ${database} TO "${owner.id}_read"`;
      await query(server, `${rights}; COMMENT ON DATABASE ${database} IS ${pg.escapeLiteral(found?.comment ?? '')}`);
      await query({ ...server, database }, more);
    }

    async function undo(): Promise<void> {
      await query(server, `DROP DATABASE ${database} WITH (FORCE)`);
      await query(server, `ALTER DATABASE former_${database} RENAME TO ${database}`);
      await query(server, `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS true`);
    }

    /** The organizations' tables and rights. */
    function content(): string {
      const { owner, other } = inhabitants;
      const [own, reader] = [`"${owner.id}"`, `"${owner.id}_read"`];
      const schema = kind === 'schema' ? own : 'public';
      const place =
        kind === 'schema'
          ? [owner, other]
              .map(({ id }) => `CREATE SCHEMA "${id}" AUTHORIZATION postern_platform; GRANT ALL ON SCHEMA "${id}" TO "${id}"`)
              .join('; ')
          : `ALTER SCHEMA public OWNER TO ${own}`;
      return `${place}; GRANT USAGE ON SCHEMA ${schema} TO ${reader};
        CREATE TABLE ${schema}.seen AS SELECT 1 AS id; CREATE TABLE ${schema}.hidden AS SELECT 'secret' AS body;
        ALTER TABLE ${schema}.seen OWNER TO ${own}; ALTER TABLE ${schema}.hidden OWNER TO ${own}; GRANT SELECT ON ${schema}.seen TO ${reader}`;
    }

    it('nobody reaches further after a restore while the service runs', async () => {
      const told = () => service.observations.filter((one) => one.name === 'service.warning' && one.message.includes('hardened'));
      await attack(service, kind, inhabitants);
      expect(told()).toEqual([]);
      await restore(content());
      await attack(service, kind, inhabitants);
      const message = `the database ${database} was not hardened, as one that has been restored, and now it is`;
      expect(told()).toEqual([{ name: 'service.warning', message }]);
      await undo();
      await attack(service, kind, inhabitants);
    });

    it('nobody reaches further after a restore while it does not', async () => {
      await restore(content());
      const another = await startTestService({ ...variables, DATABASE_URL: serverUrl(server) });
      await attack(another, kind, inhabitants);
      await another.close();
      await undo();
    });

    it('without a superuser the log says once that it stays open', async () => {
      const seen: Observation[] = [];
      const options = {
        secret: TEST_SECRET,
        controlDatabase: variables.POSTERN_CONTROL_DATABASE,
        observe: (one: Observation) => seen.push(one),
      };
      const { platform: login } = await prepareCluster({ ...options, admin: server });
      const cluster = await prepareCluster({ ...options, admin: { ...server, ...login, database: options.controlDatabase } });
      expect(seen).toEqual([]);
      await restore(content());
      const platform = new Platform(cluster);
      const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
      const provisioner = new ProvisionerByKind({ platform, connectionLimit: 20, limits, observe: options.observe }, kind);
      const placement = provisioner.placementFor(inhabitants.owner.id);
      for (let time = 0; time < 3; time += 1) (await provisioner.open(placement)).end();
      const message = `the database ${database} is not hardened, as one that has been restored, and cannot be hardened: it takes a superuser`;
      expect(seen).toEqual([{ name: 'service.warning', message }]);
      // The database is the platform's, so this needs none.
      const [temporary] = await query(
        server,
        `SELECT has_database_privilege('${inhabitants.owner.id}_read', '${database}', 'TEMPORARY') AS may`,
      );
      expect(temporary).toEqual({ may: false });
      await platform.close();
      await undo();
    });
  },
);

// pg_dumpall goes with the server's version or an older one, and Debian's is 15.
describe.runIf(hasPostgres15).each(PLACEMENTS)('with a %s for each organization, on PostgreSQL 15', (kind: Kind) => {
  it('nobody reaches further on a server that all databases have been restored to', async () => {
    const variables = { POSTERN_PLACEMENT: kind, POSTERN_CONTROL_DATABASE: newControlDatabase() };
    const [former, restored, scratch] = [await startPostgres15(), await startPostgres15(), await makeScratch()];
    const before = await startTestService({ ...variables, DATABASE_URL: serverUrl(former) });
    const inhabitants = await settle(before);
    await attack(before, kind, inhabitants);
    await before.close();

    const dump = join(scratch.path, 'all.sql');
    await dumpAll(former, dump);
    await former.stop();
    await chmod(scratch.path, 0o755);
    await run('/usr/lib/postgresql/15/bin/psql', ['-X', '-q', '-d', 'postgres', '-f', dump], {
      env: environment(restored),
      maxBuffer: 1e8,
    });

    const after = await startTestService({ ...variables, DATABASE_URL: serverUrl(restored) });
    await attack(after, kind, inhabitants);
    await after.close();
    await restored.stop();
    await scratch.remove();
  });
});

function environment({ host, port, user, password }: TestCluster): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, PGHOST: host, PGPORT: String(port), PGUSER: user, PGPASSWORD: password };
}

async function dumpAll(server: TestCluster, file: string): Promise<void> {
  const child = execFile('/usr/lib/postgresql/15/bin/pg_dumpall', [], { env: environment(server), maxBuffer: 1e8 });
  if (child.stdout !== null) await pipeline(child.stdout, createWriteStream(file));
}
