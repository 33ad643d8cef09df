import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, inject, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let operator: pg.Client;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  operator = new pg.Client({ connectionString: inject('clusterUrl') });
  await operator.connect();
});
afterAll(async () => {
  await operator.end();
  await service.close();
});
beforeEach(async () => {
  organization = await service.signUp();
});

const TERMINATED = { severity: 'FATAL', code: '57P01', message: 'terminating connection due to administrator command' };

/** Ends all sessions of the organization, as an operator does. */
async function terminateAll(): Promise<number> {
  const { rowCount } = await operator.query('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1', [
    organization.id,
  ]);
  return rowCount ?? 0;
}

it('a session that ends itself is told so as Postgres tells it', async () => {
  const client = await service.connect(organization);
  await expect(client.query('SELECT pg_terminate_backend(pg_backend_pid())')).rejects.toMatchObject(TERMINATED);
  await expect(client.query('SELECT 1')).rejects.toThrow();
  expect((await service.query(organization, 'SELECT 1 AS one')).status).toBe(200);
});

it('a session in a transaction is told, and nothing of the transaction remains', async () => {
  const client = await service.connect(organization);
  await client.query('CREATE TABLE notes (body text)');
  await client.query("BEGIN; INSERT INTO notes VALUES ('half')");
  const told = new Promise((resolve) => client.once('error', resolve));
  await terminateAll();
  expect(await told).toMatchObject(TERMINATED);
  expect((await service.query(organization, 'SELECT * FROM notes')).body.rows).toEqual([]);
});

it('a result that breaks off is never made to look whole', async () => {
  const client = await openSession(service, organization);
  await client.write(queryMessage("SELECT repeat('x', 1000) FROM generate_series(1, 10000000)"));
  const types: string[] = [];
  for (let terminated = false; ; ) {
    const message = await client.read();
    if (typeof message !== 'object') {
      types.push(message ?? 'silence');
      break;
    }
    if (types.at(-1) !== message.type) types.push(message.type);
    if (message.type === 'D' && !terminated) {
      terminated = true;
      await terminateAll();
    }
  }
  // RowDescription, rows, and then an error if the last row was whole: no CommandComplete, no ReadyForQuery.
  expect(['T D E EOF', 'T D EOF', 'T D  EOF']).toContain(types.join(' '));
});

it('an idle session of the pool that was lost is replaced before anybody notices', async () => {
  const closed = () => service.observations.filter(({ name }) => name === 'backend.closed').length;
  await service.query(organization, 'SELECT 1');
  await eventually('its session is idle', async () => {
    const { rows } = await operator.query('SELECT state FROM pg_stat_activity WHERE usename = $1', [organization.id]);
    return rows.length === 1 && rows[0].state === 'idle';
  });
  const before = closed();
  expect(await terminateAll()).toBe(1);
  await eventually('the pool has noticed', () => closed() > before);
  expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
});

it('one session may end another of the same organization', async () => {
  const [client, other] = [await service.connect(organization), await service.connect(organization)];
  await client.query('BEGIN');
  const { rows } = await client.query('SELECT pg_backend_pid() AS pid');
  const told = new Promise((resolve) => client.once('error', resolve));
  const terminate = 'SELECT pg_terminate_backend(pid => $1, timeout => $2) AS ended';
  expect((await other.query(terminate, [rows[0].pid, 1_000])).rows).toEqual([{ ended: true }]);
  expect(await told).toMatchObject(TERMINATED);
  await other.end();
});

it('what DROP OWNED takes along of public is there again for everybody at once', async () => {
  const clients = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
  // As many backends, which the pool keeps.
  await Promise.all(clients.map((client) => client.query('BEGIN')));
  await Promise.all(clients.map((client) => client.query('COMMIT')));
  const [one, ...others] = clients;
  await one?.query('DROP OWNED BY CURRENT_USER');
  await Promise.all([...others, one].map((client, number) => client?.query(`CREATE TABLE again${number} ()`)));
  await service.query(organization, 'DROP OWNED BY CURRENT_USER');
  expect(await service.query(organization, 'CREATE TABLE again ()')).toMatchObject({ status: 200 });
  await Promise.all(clients.map((client) => client.query('DROP TABLE IF EXISTS again')));
  await Promise.all(clients.map((client) => client.end()));
});

it('a transaction over HTTP whose session is lost says so, and nothing of it remains', async () => {
  await service.query(organization, 'CREATE TABLE notes (body text)');
  const statements = [
    "INSERT INTO notes VALUES ('half')",
    'SELECT pg_terminate_backend(pg_backend_pid())',
    "INSERT INTO notes VALUES ('more')",
  ];
  const { status, body } = await service.call('POST', '/api/transaction', {
    key: organization.apiKey,
    body: { statements: statements.map((sql) => ({ sql })) },
  });
  expect(status).toBe(503);
  expect(body).toMatchObject({ code: 'database_unavailable', sqlstate: '57P01', statementIndex: 1, transactionStatus: 'rolled_back' });
  expect((await service.query(organization, 'SELECT * FROM notes')).body.rows).toEqual([]);
});
