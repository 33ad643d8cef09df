import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rolePassword } from '../../../src/auth/derived-secrets.ts';
import type { Placement } from '../../../src/catalog/organization.ts';
import { Platform } from '../../../src/placement/cluster.ts';
import { prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { allowWrites, dataBytes, hasRefusedWrites, OVER_QUOTA, refuseWrites } from '../../../src/placement/disk-quota.ts';
import type { Provisioner } from '../../../src/placement/provisioner.ts';
import { ProvisionerByKind } from '../../../src/placement/provisioner-by-kind.ts';
import { asRestricted, restrictedRole } from '../../../src/placement/restricted-roles.ts';
import { codeOf } from '../../../src/protocol/backend.ts';
import { newOrganizationId } from '../../../src/router/accounts.ts';
import type { TestCluster } from '../../support/cluster.setup.ts';
import { A_TRIGGER, AFTERWARDS, ALLOWED, ATTEMPTS, BEFORE, LARGE_OBJECT, READERS_ATTEMPTS } from '../../support/disk-quota.ts';
import { hasPostgres15, PROGRAMS_OF_15, startPostgres15 } from '../../support/postgres15.ts';
import { startPostgres18 } from '../../support/postgres18.ts';
import { PLACEMENTS } from '../../support/service.ts';

const servers = [
  { name: 'PostgreSQL 18', start: startPostgres18 },
  ...(hasPostgres15 ? [{ name: 'PostgreSQL 15', start: startPostgres15 }] : []),
];

/** What a dump, or a look at the catalogs, may show of the protection. */
const CATALOGS = `
  SELECT 'schema ' || nspname AS what, coalesce(nspacl::text, '') AS how FROM pg_namespace WHERE nspname !~ '^pg_'
  UNION ALL SELECT 'trigger ' || tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL SELECT 'event trigger ' || evtname, '' FROM pg_event_trigger
  UNION ALL SELECT 'database ' || datname, coalesce(datacl::text, '') FROM pg_database WHERE datname = current_database()
  UNION ALL SELECT 'member ' || member::regrole::text, roleid::regrole::text FROM pg_auth_members
  UNION ALL SELECT 'comment ' || rolname, shobj_description(oid, 'pg_authid') FROM pg_roles
  ORDER BY 1, 2`;

describe.each(servers)('on $name', ({ start }) => {
  let admin: TestCluster & { stop(): Promise<void> };
  let platform: Platform;
  let provisioner: Provisioner;

  beforeAll(async () => {
    admin = await start();
    const cluster = await prepareCluster({ admin, secret: 'a secret of the tests', controlDatabase: 'quota_control', observe: () => {} });
    platform = new Platform(cluster);
    const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
    provisioner = new ProvisionerByKind({ platform, connectionLimit: 20, limits, observe: () => {} }, 'database');
  });
  afterAll(async () => {
    await platform.close();
    await admin.stop();
  });

  describe.each(PLACEMENTS)('in the %s placement', (kind) => {
    async function provisioned(): Promise<Placement> {
      const placement = provisioner.placementFor(newOrganizationId(), kind);
      await provisioner.provision(placement);
      await provisioner.admit(placement, 'read');
      return placement;
    }

    /** A login of the role itself, beside Postern. */
    function loginOf({ role, database, schema }: Placement): pg.ClientConfig {
      const { host, port, secret } = platform.cluster;
      return { host, port, user: role, password: rolePassword(secret, role), database, options: `-c search_path=${schema}` };
    }

    const place = (placement: Placement) => ({ cluster: platform.cluster, placement });
    const refuse = (placement: Placement) => refuseWrites(place(placement), () => provisioner.terminateSessions(placement));
    const catalogs = ({ database }: Placement) => query({ ...admin, database }, CATALOGS);

    async function furnished(): Promise<{ placement: Placement; filled: (sql: string) => string; protect: () => Promise<void> }> {
      const placement = await provisioned();
      const filledWith = (values: Readonly<Record<string, string>>) => (sql: string) =>
        Object.entries(values).reduce((text, [name, value]) => text.replaceAll(`%${name}%`, value), sql);
      const values: Record<string, string> = { READER: restrictedRole(placement.role, 'read'), SCHEMA: placement.schema };
      await query(loginOf(placement), filledWith(values)(BEFORE));
      const [object] = await query(loginOf(placement), LARGE_OBJECT);
      values.LO = String(object?.id);
      return {
        placement,
        filled: (sql) => filledWith(values)(sql),
        async protect() {
          await refuse(placement);
          const [trigger] = await query(loginOf(placement), A_TRIGGER);
          values.TRIGGER = String(trigger?.name);
        },
      };
    }

    test('neither the organization nor its readers can write, or take the protection away, by a login of their own', async () => {
      const { placement, filled, protect } = await furnished();
      await protect();
      const before = await catalogs(placement);
      const tables = await query(
        loginOf(placement),
        'SELECT count(*)::int AS count FROM pg_class WHERE relnamespace = current_schema()::regnamespace',
      );
      const answers: Record<string, string> = {};
      const expected: Record<string, string> = {};
      for (const [one, attempts] of [
        [placement, ATTEMPTS],
        [asRestricted(placement, 'read'), READERS_ATTEMPTS],
      ] as const) {
        const session = await open(loginOf(one));
        for (const { sql, code = '53100' } of attempts) {
          expected[`${one.role} ${sql}`] = code;
          answers[`${one.role} ${sql}`] = await codeFrom(session.query(filled(sql)));
        }
        await session.end();
      }
      expect(answers).toEqual(expected);
      expect(await catalogs(placement)).toEqual(before);
      expect(
        await query(loginOf(placement), 'SELECT count(*)::int AS count FROM pg_class WHERE relnamespace = current_schema()::regnamespace'),
      ).toEqual(tables);
      await provisioner.deprovision(placement);
    });

    test('what makes room is possible, and afterwards everything is, with nothing left of the protection', async () => {
      const { placement, filled, protect } = await furnished();
      const before = await catalogs(placement);
      const dumped = await dump(placement);
      await protect();
      await protect();
      expect(await hasRefusedWrites(place(placement))).toBe(true);
      await allowWrites(place(placement));
      expect(await hasRefusedWrites(place(placement))).toBe(false);
      expect(await catalogs(placement)).toEqual(before);
      expect(await dump(placement)).toEqual(dumped);
      await protect();
      const session = await open(loginOf(placement));
      for (const sql of ALLOWED) await session.query(filled(sql));
      await allowWrites(place(placement));
      await allowWrites(place(placement));
      for (const sql of AFTERWARDS) await session.query(filled(sql));
      await session.end();
      await provisioner.deprovision(placement);
    });

    /** By the oldest version's program, which is the only one that is there. */
    async function dump({ database, schema }: Placement): Promise<string> {
      if (platform.cluster.serverVersion >= 160_000) return '';
      const { host, port, user, password } = admin;
      const args = ['--host', host, '--port', String(port), '--username', user, '--schema', schema, database];
      const { stdout } = await promisify(execFile)(join(PROGRAMS_OF_15, 'pg_dump'), args, { env: { PGPASSWORD: password } });
      // From 15.14 on it has a random word in each dump.
      return stdout.replace(/^\\(un)?restrict .*$/gm, '');
    }

    test('an interrupted protection is completed by the next attempt, also if tables are locked meanwhile', async () => {
      const { placement, filled, protect } = await furnished();
      const session = await open(loginOf(placement));
      await session.query('BEGIN; CREATE TEMPORARY TABLE mine (id int); LOCK TABLE notes');
      await expect(refuseWrites(place(placement), () => Promise.reject(new Error('cannot end sessions')))).rejects.toThrow(
        'cannot end sessions',
      );
      expect(await hasRefusedWrites(place(placement))).toBe(false);
      expect(await codeFrom(query(loginOf(placement), 'CREATE TABLE made (id int)'))).toBe('53100');
      await protect();
      expect(await codeFrom(session.query('INSERT INTO mine VALUES (1)'))).not.toBe('');
      expect(await codeFrom(query(loginOf(placement), filled("INSERT INTO notes VALUES (1000, '')")))).toBe('53100');
      await allowWrites(place(placement));
      await provisioner.deprovision(placement);
    });

    test('a table that stays locked leaves none of the others unprotected', async () => {
      const { placement } = await furnished();
      const session = await open(loginOf(placement));
      await session.query('BEGIN; LOCK TABLE notes');
      // As if its statement could not be stopped.
      expect(await codeFrom(refuseWrites(place(placement), async () => {}))).toBe('55P03');
      expect(await hasRefusedWrites(place(placement))).toBe(false);
      for (const table of ['spare', 'watched', 'parted', '"Odd "" name"'])
        expect(await codeFrom(query(loginOf(placement), `INSERT INTO ${table} VALUES (1)`))).toBe('53100');
      await session.query('COMMIT');
      await refuseWrites(place(placement), async () => {});
      expect(await hasRefusedWrites(place(placement))).toBe(true);
      expect(await codeFrom(session.query("INSERT INTO notes VALUES (1000, '')"))).toBe('53100');
      await session.end();
      await provisioner.deprovision(placement);
    });

    test('nobody keeps the protection by reading what it consists of, or by a lock', async () => {
      const { placement, protect } = await furnished();
      const before = await catalogs(placement);
      await protect();
      const reading = await open(loginOf(placement));
      await reading.query('BEGIN; SELECT FROM pg_catalog.postern_over_quota');
      await allowWrites(place(placement));
      expect(await catalogs(placement)).toEqual(before);
      await reading.query("INSERT INTO notes VALUES (1000, ''); COMMIT");
      await protect();
      const locking = await open(loginOf(placement));
      await locking.query('BEGIN; LOCK TABLE notes IN ACCESS SHARE MODE');
      await allowWrites(place(placement), () => provisioner.terminateSessions(placement));
      expect(await catalogs(placement)).toEqual(before);
      for (const session of [reading, locking]) await session.end();
      await provisioner.deprovision(placement);
    });

    test('a right that is given back meanwhile is noticed, and taken again', async () => {
      const { placement, protect } = await furnished();
      const { role, database, schema } = placement;
      const before = await catalogs(placement);
      await protect();
      const given = ['postern_owners', `CREATE ON SCHEMA ${schema}`, ...(kind === 'database' ? [`TEMPORARY ON DATABASE ${database}`] : [])];
      for (const right of given) {
        await query({ ...admin, database }, `GRANT ${right} TO ${role}`);
        expect([right, await hasRefusedWrites(place(placement))]).toEqual([right, false]);
        await refuse(placement);
        expect([right, await hasRefusedWrites(place(placement))]).toEqual([right, true]);
      }
      await allowWrites(place(placement));
      expect(await catalogs(placement)).toEqual(before);
      await provisioner.deprovision(placement);
    });

    test('statistics are made by ANALYZE alone, and by hand again afterwards', async () => {
      const { placement, protect } = await furnished();
      const { schema } = placement;
      const write = [
        `SELECT pg_restore_relation_stats('schemaname', '${schema}', 'relname', 'notes', 'relpages', 5)`,
        `SELECT pg_restore_attribute_stats('schemaname', '${schema}', 'relname', 'notes', 'attname', 'body', 'inherited', false, 'avg_width', 5)`,
        `SELECT pg_clear_relation_stats('${schema}', 'notes')`,
        `SELECT pg_clear_attribute_stats('${schema}', 'notes', 'body', false)`,
      ];
      const answers = () => Promise.all(write.map((sql) => codeFrom(query(loginOf(placement), sql))));
      // Before PostgreSQL 18 there are no such functions.
      const isThere = platform.cluster.serverVersion >= 180_000;
      const all = (code: string) => write.map(() => (isThere ? code : '42883'));
      await protect();
      expect(await answers()).toEqual(all('42501'));
      await query(loginOf(placement), 'ANALYZE notes');
      await allowWrites(place(placement));
      expect(await answers()).toEqual(all(''));
      await provisioner.deprovision(placement);
    });

    test('without a superuser, what is protected is not taken for free', async () => {
      const { placement, protect } = await furnished();
      const without = { cluster: { ...platform.cluster, superuser: undefined }, placement };
      await allowWrites(without);
      await protect();
      await expect(allowWrites(without)).rejects.toThrow('it takes a superuser');
      await allowWrites(place(placement));
      await allowWrites(without);
      await provisioner.deprovision(placement);
    });

    test('repairs of a login, and sessions without its schema, give nothing back', async () => {
      const { placement } = await furnished();
      await refuse(placement);
      await query(loginOf(placement), "ALTER ROLE CURRENT_USER PASSWORD 'another'");
      if (kind === 'database') await query({ ...loginOf(placement), password: 'another' }, 'DROP SCHEMA public CASCADE');
      (await provisioner.open(placement)).end();
      await provisioner.provision(placement);
      expect(await codeFrom(query(loginOf(placement), 'SELECT lo_create(0)'))).toBe('42501');
      expect(await codeFrom(query(loginOf(placement), 'EXPLAIN ANALYZE CREATE TEMPORARY TABLE made AS SELECT 1'))).toBe('42501');
      // In a database of its own it has dropped its schema.
      if (kind === 'schema')
        expect(await codeFrom(query(loginOf(placement), 'EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1'))).toBe('42501');
      expect(await codeFrom(query(loginOf(placement), 'CREATE SCHEMA another'))).toBe('53100');
      await prepareCluster({ admin, secret: 'a secret of the tests', controlDatabase: 'quota_control', observe: () => {} });
      expect(await codeFrom(query(loginOf(placement), 'SELECT lo_create(0)'))).toBe('42501');
      await allowWrites(place(placement));
      const backend = await provisioner.open(placement);
      backend.end();
      await query(loginOf(placement), 'CREATE TABLE made (id int); INSERT INTO made VALUES (1); SELECT lo_create(0)');
      await provisioner.deprovision(placement);
    });

    test('the others in the same database, and the platform, can do what they could', async () => {
      const [one, other] = [await furnished(), await furnished()];
      await one.protect();
      for (const sql of AFTERWARDS) await query(loginOf(other.placement), sql);
      await query(loginOf(other.placement), 'CREATE TEMPORARY TABLE mine AS SELECT 1');
      const third = await provisioned();
      for (const placement of [one.placement, other.placement, third]) await provisioner.deprovision(placement);
    });

    test('a table that is locked is measured all the same', async () => {
      const placement = await provisioned();
      await query(
        loginOf(placement),
        'CREATE TABLE large AS SELECT repeat(n::text, 100) AS body FROM generate_series(1, 5000) n; CREATE INDEX ON large (left(body, 9))',
      );
      const bytes = (await dataBytes(platform, placement)) ?? 0;
      expect(bytes).toBeGreaterThan(1_000_000);
      const session = await open(loginOf(placement));
      await session.query('BEGIN; LOCK TABLE large');
      const locked = (await dataBytes(platform, placement)) ?? 0;
      expect(Math.abs(locked - bytes)).toBeLessThan(0.1 * bytes);
      await session.end();
      await provisioner.deprovision(placement);
    });
  });

  test('an error of the protection says what to do', async () => {
    const placement = provisioner.placementFor(newOrganizationId());
    await provisioner.provision(placement);
    await refuseWrites({ cluster: platform.cluster, placement }, async () => {});
    const { host, port, secret } = platform.cluster;
    const login = { host, port, user: placement.role, password: rolePassword(secret, placement.role), database: placement.database };
    await expect(query(login, 'CREATE TABLE made (id int)')).rejects.toMatchObject({
      code: '53100',
      message: OVER_QUOTA,
      hint: expect.stringMatching(/^DROP and TRUNCATE make room; after DELETE, VACUUM FULL does\./),
    });
    await provisioner.deprovision(placement);
  });
});

async function open(login: pg.ClientConfig): Promise<pg.Client> {
  const session = new pg.Client(login);
  session.on('error', () => {});
  await session.connect();
  return session;
}

async function query(login: pg.ClientConfig, sql: string): Promise<Record<string, unknown>[]> {
  const session = await open(login);
  try {
    const results = await session.query(sql);
    return [results].flat().at(-1)?.rows ?? [];
  } finally {
    await session.end();
  }
}

/** @returns an empty text if there is no error */
async function codeFrom(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => '',
    (error: unknown) => codeOf(error) || String(error),
  );
}
