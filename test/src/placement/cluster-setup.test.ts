import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEmbedded } from '../../../src/embedded/embedded.ts';
import type { Observation } from '../../../src/observation.ts';
import { ClusterError } from '../../../src/placement/cluster.ts';
import { type ClusterOptions, prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { FORGETFUL } from '../../support/cluster.setup.ts';
import { hasPostgres15, startPostgres15 } from '../../support/postgres15.ts';
import { startPostgres18 } from '../../support/postgres18.ts';
import { makeScratch } from '../../support/scratch.ts';

const SECRET = 'a secret of the tests';
const CONTROL = 'control';

function optionsFor(admin: ClusterOptions['admin'], seen: Observation[] = []): ClusterOptions {
  return { admin, secret: SECRET, controlDatabase: CONTROL, observe: (observation) => seen.push(observation) };
}

async function query<Row extends object>(login: pg.ClientConfig, sql: string, values: unknown[] = []): Promise<Row[]> {
  const client = new pg.Client(login);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Row>(sql, values)).rows;
  } finally {
    await client.end();
  }
}

/** Names and versions of everything that setting up could write. */
async function stateOf(admin: pg.ClientConfig): Promise<unknown> {
  return query(
    admin,
    `SELECT 'database' AS kind, datname AS name, xmin::text FROM pg_database
     UNION ALL SELECT 'role', rolname, xmin::text FROM pg_authid
     UNION ALL SELECT 'comment', description, xmin::text FROM pg_shdescription
     UNION ALL SELECT 'parameter', parname, xmin::text FROM pg_parameter_acl ORDER BY 1, 2`,
  );
}

const servers = [{ version: 18, start: startPostgres18 }, ...(hasPostgres15 ? [{ version: 15, start: startPostgres15 }] : [])];

describe.each(servers)('on PostgreSQL $version', ({ version, start }) => {
  let admin: Awaited<ReturnType<typeof start>>;

  beforeAll(async () => {
    admin = await start();
  });
  afterAll(() => admin.stop());

  test('two that start at once on an untouched server both find it ready', async () => {
    const [first, second] = await Promise.all([prepareCluster(optionsFor(admin)), prepareCluster(optionsFor(admin))]);
    expect(first.platform).toEqual(second.platform);
    expect(Math.floor(first.serverVersion / 10_000)).toBe(version);
    expect(first.maxConnections).toBe(version === 18 ? 197 : 97);
    expect(first.roleSettings).toEqual({ temp_file_limit: '1GB', log_min_messages: 'fatal' });
  });

  test('everything runs as a role that is no superuser', async () => {
    const cluster = await prepareCluster(optionsFor(admin));
    const login = cluster.login({ ...cluster.platform, database: CONTROL });
    expect(
      await query(
        login,
        'SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = current_user',
      ),
    ).toEqual([
      { rolname: 'postern_platform', rolsuper: false, rolcreatedb: true, rolcreaterole: true, rolreplication: false, rolbypassrls: false },
    ]);
  });

  test('a server that is ready already is not written to, and nothing is warned about', async () => {
    await prepareCluster(optionsFor(admin));
    const before = await stateOf(admin);
    const seen: Observation[] = [];
    await prepareCluster(optionsFor(admin, seen));
    expect(await stateOf(admin)).toEqual(before);
    expect(seen).toEqual([]);
  });

  test('no other role may connect to the databases that are not its own', async () => {
    await prepareCluster(optionsFor(admin));
    await query(admin, "DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN PASSWORD 'stranger'");
    for (const database of ['postgres', 'template1', CONTROL]) {
      const login = { ...admin, user: 'stranger', password: 'stranger', database };
      await expect(query(login, 'SELECT')).rejects.toMatchObject({ code: '42501' });
    }
    await expect(query({ ...admin, database: 'postern_template' }, 'SELECT')).rejects.toMatchObject({ code: '55000' });
  });

  test('a changed secret changes the password, and a warning says so', async () => {
    await prepareCluster(optionsFor(admin));
    const seen: Observation[] = [];
    const other = await prepareCluster({ ...optionsFor(admin, seen), secret: 'another secret of the tests' });
    const told =
      'the secret is another one than that with which the password of postern_platform was set: it has been changed, and processes with the former secret cannot log in any more';
    expect(seen).toEqual([{ name: 'service.warning', message: told }]);
    await query(other.login({ ...other.platform, database: CONTROL }), 'SELECT');
    const cluster = await prepareCluster(optionsFor(admin));
    await expect(query(other.login({ ...other.platform, database: CONTROL }), 'SELECT')).rejects.toMatchObject({ code: '28P01' });
    await query(cluster.login({ ...cluster.platform, database: CONTROL }), 'SELECT');
  });

  test.each(['postern_template', 'postern_template_unfinished', 'postern_shared'])(
    'the control database cannot be %s, which is made anew at need',
    async (controlDatabase) => {
      await expect(prepareCluster({ ...optionsFor(admin), controlDatabase })).rejects.toThrow(
        new ClusterError(`POSTERN_CONTROL_DATABASE: ${controlDatabase} is for organizations`),
      );
    },
  );

  test('what a crash left of a template is built anew', async () => {
    await prepareCluster(optionsFor(admin));
    await query(admin, 'ALTER DATABASE postern_template RENAME TO postern_template_unfinished');
    await query(admin, 'ALTER DATABASE postern_template_unfinished WITH ALLOW_CONNECTIONS true');
    await prepareCluster(optionsFor(admin));
    expect(
      await query(admin, "SELECT datname, datistemplate, datallowconn FROM pg_database WHERE datname LIKE 'postern_template%'"),
    ).toEqual([{ datname: 'postern_template', datistemplate: true, datallowconn: false }]);
  });

  test('a role that is no superuser and may create databases and roles is enough, and what it could not do is said once', async () => {
    await query(admin, `DROP DATABASE IF EXISTS ${CONTROL} WITH (FORCE)`);
    await query(admin, 'ALTER DATABASE postern_template WITH IS_TEMPLATE false');
    for (const database of ['postern_template', 'postern_shared']) await query(admin, `DROP DATABASE ${database}`);
    await query(admin, 'GRANT CONNECT ON DATABASE postgres, template1 TO PUBLIC');
    await query(admin, "CREATE ROLE manager LOGIN CREATEDB CREATEROLE PASSWORD 'manager'");
    const manager = { ...admin, user: 'manager', password: 'manager' };
    const seen: Observation[] = [];
    const cluster = await prepareCluster(optionsFor(manager, seen));
    expect(cluster.platform).toEqual({ user: 'manager', password: 'manager' });
    expect(cluster.roleSettings).toEqual({});
    expect(seen).toEqual([
      {
        name: 'service.warning',
        message:
          'without a superuser these remain: organizations can see statistics and locks of the whole server (pg_stat_activity, pg_locks ' +
          'and the like); those in the schema placement share advisory locks; all can evaluate XPath expressions, which nothing can stop; read keys can create large objects, and temporary tables in the schema placement; every role may connect to the database postgres and template1; temp_file_limit and log_min_messages cannot be set ' +
          'for organizations',
      },
    ]);
    const before = await stateOf(admin);
    await prepareCluster(optionsFor(manager));
    expect(await stateOf(admin)).toEqual(before);
  });

  test('a role that may not create roles is refused with what it lacks', async () => {
    await query(admin, "CREATE ROLE nobody LOGIN CREATEDB PASSWORD 'nobody'");
    const refused = prepareCluster(optionsFor({ ...admin, user: 'nobody', password: 'nobody' }));
    await expect(refused).rejects.toThrow(ClusterError);
    await expect(refused).rejects.toThrow('the role nobody needs CREATEDB and CREATEROLE (ALTER ROLE "nobody" CREATEDB CREATEROLE)');
  });

  test("a control database that is somebody else's is refused", async () => {
    const refused = prepareCluster({ ...optionsFor(admin), controlDatabase: 'template1' });
    await expect(refused).rejects.toThrow(ClusterError);
    await expect(refused).rejects.toThrow(/^POSTERN_CONTROL_DATABASE: the database template1 belongs to the role postgres, not to /);
  });

  test('a pooler that leaves out the options of a session is refused', async () => {
    const scratch = await makeScratch();
    const pooler = createServer((client) => {
      const server = connect(`${admin.host}/.s.PGSQL.${admin.port}`);
      client.once('data', (startup) => {
        server.write(Buffer.from(startup.toString('latin1').replace('search_path=', 'jit=off     '), 'latin1'));
        client.pipe(server).pipe(client);
      });
    });
    await once(pooler.listen(join(scratch.path, '.s.PGSQL.5432')), 'listening');
    const refused = prepareCluster(optionsFor({ ...admin, host: scratch.path, port: 5432 }));
    await expect(refused).rejects.toThrow(ClusterError);
    await expect(refused).rejects.toThrow('the startup parameter "options" does not reach the server');
    pooler.close();
    await scratch.remove();
  });

  test('a wrong password is told at once', async () => {
    const refused = prepareCluster(optionsFor({ ...admin, password: 'wrong' }));
    await expect(refused).rejects.toThrow(ClusterError);
    await expect(refused).rejects.toThrow('password authentication failed for user "postgres"');
  });
});

test('a server that does not come up in time is given up with the reason', async () => {
  const admin = { host: '/nowhere', port: 5432, user: 'postgres', password: '' };
  const startedAt = performance.now();
  const seen: Observation[] = [];
  const refused = prepareCluster({ ...optionsFor(admin, seen), waitMs: 300 });
  await expect(refused).rejects.toThrow(ClusterError);
  await expect(refused).rejects.toThrow('PostgreSQL at /nowhere/.s.PGSQL.5432 cannot be used: connect ENOENT /nowhere/.s.PGSQL.5432');
  // A timer may come a little early.
  expect(performance.now() - startedAt).toBeGreaterThan(290);
  const reason = 'PostgreSQL at /nowhere/.s.PGSQL.5432 does not answer yet: connect ENOENT /nowhere/.s.PGSQL.5432';
  expect(seen).toEqual([{ name: 'service.warning', message: `${reason}; waiting up to 1 s` }]);
});

test('a server that comes up later is waited for', async () => {
  const scratch = await makeScratch();
  const dataDir = join(scratch.path, 'data');
  const secret = 'known beforehand, and long';
  const first = await startEmbedded({ dataDir, secret, settings: FORGETFUL });
  await first.stop();
  const preparing = prepareCluster(optionsFor({ host: first.host, port: first.port, ...first.superuser }));
  const second = await startEmbedded({ dataDir, secret, settings: FORGETFUL });
  await expect(preparing).resolves.toMatchObject({ controlDatabase: CONTROL });
  await second.stop();
  await scratch.remove();
});

test('a URL that makes no sense is refused', async () => {
  await expect(prepareCluster(optionsFor('postgres://host:port:port/'))).rejects.toThrow(/^DATABASE_URL: /);
});
