import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';
import { killWorker, startsOf } from '../support/worker-processes.ts';

const WORKERS = 4;
const CLIENTS = 12;
const KEY = 'the key of the operators';

const ORGANIZATIONS = 1_000;
/** Nobody asks for their databases. */
const INSERT = `
  INSERT INTO postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
  SELECT id, 'Test ' || n, n || '@many.test', n || '@many.test', 'active', 0,
    jsonb_build_object('kind', 'database', 'cluster', 'default', 'database', id, 'schema', 'public', 'role', id), now()
  FROM (SELECT n, 'org_' || lpad(n::text, 12, '0') AS id FROM generate_series(1, ${ORGANIZATIONS}) n) AS made`;

const variables = testVariables();
let installation: Installation;
let postern: PosternProcess;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({ ...variables, POSTERN_WORKERS: String(WORKERS), POSTERN_OPERATOR_KEY: KEY });
  await eventually('all workers have started', () => startsOf(postern) === WORKERS);
});
afterAll(() => installation.remove());

it('the console shows what all workers have, and reaches their sessions', async () => {
  const acme = await postern.signUp();
  const clients: pg.Client[] = [];
  while (clients.length < CLIENTS) clients.push(await postern.connect(acme));
  for (const client of clients) await client.query('SELECT 1');
  const console = new pg.Client({ host: '127.0.0.1', port: postern.wirePort, user: 'operator', database: 'postern', password: KEY });
  await console.connect();
  const shown = async (sql: string) => (await console.query(sql)).rows;

  expect(await shown(`SHOW POOLS LIKE '${acme.id}'`)).toMatchObject([{ cl_active: CLIENTS, cl_waiting: 0 }]);
  expect(Number((await shown(`SHOW STATS_TOTALS LIKE '${acme.id}'`))[0]?.query_count)).toBe(CLIENTS);
  const listed = await shown(`SHOW CLIENTS LIKE '${acme.id}'`);
  // The first half of an id is the number of the process.
  expect(new Set(listed.map(({ ptr }) => ptr.slice(0, 12))).size).toBe(WORKERS);

  // test/bench/operators.ts measures how long they take.
  const control = new pg.Client({ ...inject('cluster'), database: variables.POSTERN_CONTROL_DATABASE });
  await control.connect();
  await control.query(INSERT);
  for (const table of ['ORGANIZATIONS', 'DATABASES', 'USERS']) expect((await shown(`SHOW ${table}`)).length, table).toBe(ORGANIZATIONS + 1);
  expect(await shown("SHOW LISTS LIKE 'databases'")).toEqual([{ list: 'databases', items: ORGANIZATIONS + 1 }]);
  for (const table of ['STATS', 'POOLS', 'CLIENTS', 'SERVERS', 'LIMITS', 'LOCKS', 'STATE']) await shown(`SHOW ${table}`);
  expect(await shown('SHOW ORGANIZATIONS ORDER BY id DESC LIMIT 1').catch(({ code }) => code)).toBe('42703');
  expect(await shown('SHOW ORGANIZATIONS ORDER BY organization LIMIT 1')).toMatchObject([{ organization: 'org_000000000001' }]);
  await control.query("DELETE FROM postern.organizations WHERE email LIKE '%@many.test'");
  await control.end();

  const ended = clients.map((client) => new Promise((resolve) => client.once('end', resolve)));
  await console.query(
    listed
      .slice(0, 4)
      .map(({ id }) => `KILL_CLIENT ${id}`)
      .join('; '),
  );
  await eventually('four are gone', async () => (await shown(`SHOW CLIENTS LIKE '${acme.id}'`)).length === CLIENTS - 4);
  await console.query(`KILL ${acme.id}`);
  await Promise.all(ended);
  await console.query(`RESUME ${acme.id}; RECONNECT; RELOAD`);

  // Each connection is another worker's.
  const signUps = async () => {
    const body = JSON.stringify({ orgName: 'Late', email: 'late@acme.test' });
    const headers = { 'content-type': 'application/json', connection: 'close' };
    const asked = Array.from({ length: 2 * WORKERS }, () => fetch(`${postern.httpUrl}/api/auth/signup`, { method: 'POST', headers, body }));
    return (await Promise.all(asked)).map(({ status }) => status);
  };
  await console.query('SET POSTERN_SIGNUP = closed');
  expect(new Set(await signUps())).toEqual(new Set([403]));
  await console.end();
  const again = await killWorker(postern);
  await again();
  expect(new Set(await signUps())).toEqual(new Set([403]));

  const others: pg.Client[] = [];
  while (others.length < 8) {
    const other = new pg.Client({ host: '127.0.0.1', port: postern.wirePort, user: 'operator', database: 'postern', password: KEY });
    await other.connect();
    others.push(other);
  }
  const ninth = new pg.Client({ host: '127.0.0.1', port: postern.wirePort, user: 'operator', database: 'postern', password: KEY });
  await expect(ninth.connect()).rejects.toMatchObject({ code: '53300' });
  await Promise.all(others.map((one) => one.end()));
});
