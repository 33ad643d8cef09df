import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OpenApiDocument } from '../../http/docs/openapi.ts';
import { EXAMPLE_ORGANIZATION } from '../../http/routes/account.ts';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { startTestService, type TestService } from '../support/service.ts';

describe('a service whose PostgreSQL', () => {
  let cluster: OwnCluster;
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    cluster = await makeOwnCluster();
    service = await startTestService({ DATABASE_URL: cluster.url });
    organization = await service.signUp();
    await service.query(organization, 'CREATE TABLE notes (body text)');
  });
  afterAll(async () => {
    await service.close();
    await cluster.remove();
  });

  const isReady = async () => (await fetch(`${service.opsUrl}/readyz`)).status === 200;

  it('is stopped says so at both doors, and serves again when it is back', async () => {
    const client = await service.connect(organization);
    const sleeping = service.query(organization, `SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`);
    await landmarkPassed(client);
    await client.query("BEGIN; INSERT INTO notes VALUES ('half')");
    const told = once(client, 'error');
    await cluster.stop();

    expect((await told)[0]).toMatchObject({
      severity: 'FATAL',
      code: '57P01',
      message: 'terminating connection due to administrator command',
    });
    expect(await sleeping).toMatchObject({ status: 503, body: { code: 'database_unavailable', sqlstate: '57P01', retryable: false } });

    const refused = await service.query(organization, 'SELECT 1');
    expect(refused).toMatchObject({ status: 503, body: { code: 'not_ready', sqlstate: '57P03', retryable: true } });
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    await expect(service.connect(organization)).rejects.toMatchObject({ severity: 'FATAL', code: '57P03' });
    const signUp = await service.call('POST', '/api/auth/signup', { body: { orgName: 'A', email: 'nobody@acme.test' } });
    expect(signUp).toMatchObject({ status: 503, body: { code: 'not_ready' } });
    expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(503);
    expect((await fetch(`${service.httpUrl}/healthz`)).status).toBe(200);
    await expectDocumented(service, organization);
    // Nobody learns what is behind the doors (R7).
    const said = JSON.stringify([
      // The ids of requests are random.
      { ...refused.body, requestId: '' },
      { ...signUp.body, requestId: '' },
      await service.connect(organization).catch((error: Error) => ({ ...error, message: error.message })),
    ]);
    const { host, port, user } = cluster.superuser;
    for (const secret of [host, `${port}`, 'PGSQL', 'ENOENT', `"${user}"`, 'postern_']) expect(said).not.toContain(secret);

    await cluster.start();
    await eventually('it is ready', isReady);
    expect((await service.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([]);
    const again = await service.connect(organization);
    await again.query("INSERT INTO notes VALUES ('after')");
    await again.end();
    expect((await service.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'after' }]);

    // Signing up, and being told of rotated keys, work again too.
    const newcomer = await service.signUp();
    const session = await service.connect(newcomer);
    const ended = once(session, 'error');
    await service.call('POST', '/api/auth/rotate-key', { key: newcomer.apiKey });
    expect((await ended)[0]).toMatchObject({ code: '57P01' });
    const notices = () =>
      service.observations
        .flatMap((each) => (each.name === 'service.warning' ? each.message : []))
        .filter((message) => message.startsWith('notifications '));
    await eventually('the log tells that notifications are back', () => notices().length > 1);
    expect(notices()).toEqual(['notifications were lost: every key is looked up until they are back', 'notifications are back']);
  });

  it('refuses an organization’s sessions is not quoted to it, but to the operator, and serves others (A20 R7)', async () => {
    const operator = new pg.Client({ connectionString: cluster.url });
    await operator.connect();
    const [refused, other] = [await service.signUp(), await service.signUp()];
    const client = await service.connect(refused);
    const database = pg.escapeIdentifier(refused.id);
    await operator.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`);
    const lost = () => service.observations.filter(({ name }) => name === 'backend.closed').length;
    const before = lost();
    const { rowCount } = await operator.query('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1', [
      refused.id,
    ]);
    await eventually('the pool has noticed', () => lost() >= before + (rowCount ?? 0));

    const message = 'the organization is not served here any more';
    await expect(client.query('SELECT 1')).rejects.toMatchObject({ severity: 'ERROR', code: '57P03', message });
    const failure = service.observations.findLast(({ name }) => name === 'service.failure');
    const why = expect.objectContaining({ message: expect.stringContaining('is not currently accepting connections') });
    expect(failure).toMatchObject({ message: `the database ${refused.id} accepts no connections`, cause: why });
    expect((await service.query(other, 'SELECT 1')).status).toBe(200);

    await operator.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`);
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
    await operator.end();
  });

  it('has no disk space or memory left is told to the operator, without what the statements say', async () => {
    const raise = (sqlstate: string) => `DO $$ BEGIN RAISE 'said by the statement' USING ERRCODE = '${sqlstate}'; END $$`;
    const client = await service.connect(organization);
    await expect(client.query(raise('53100'))).rejects.toMatchObject({ code: '53100' });
    await client.end();
    const refused = await service.query(organization, raise('53200'));
    expect(refused).toMatchObject({ status: 503, body: { code: 'database_busy', sqlstate: '53200' } });
    const warnings = () => service.observations.filter((each) => each.name === 'service.warning' && / failed with 53/.test(each.message));
    await eventually('both are told', () => warnings().length === 2);
    const message = (failure: string) => `a request of ${organization.id} failed with ${failure}: see the log of the PostgreSQL server`;
    expect(warnings()).toEqual([
      { name: 'service.warning', message: message('53100 (disk_full)') },
      { name: 'service.warning', message: message('53200 (out_of_memory)') },
    ]);
  });

  it('loses a backend without a word says so to its client, and goes on when Postgres has recovered', async () => {
    const operator = new pg.Client({ connectionString: cluster.url });
    operator.on('error', () => {});
    await operator.connect();
    const client = await service.connect(organization);
    await client.query('BEGIN');
    const { rows } = await operator.query("SELECT pid FROM pg_stat_activity WHERE usename = $1 AND state LIKE 'idle in transaction%'", [
      organization.id,
    ]);
    const told = once(client, 'error');
    process.kill(rows[0].pid, 'SIGKILL');
    const lost = { severity: 'FATAL', code: '08006', message: 'the connection to the database server was lost' };
    expect((await told)[0]).toMatchObject(lost);
    await eventually('it serves again', async () => (await service.query(organization, 'SELECT 1')).status === 200);
    await operator.end();
  });
});

describe('when the embedded PostgreSQL dies', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await makeInstallation();
  });
  afterAll(() => installation.remove());

  it('it is started again, and the same process goes on serving', async () => {
    const postern = await installation.start();
    const organization = await postern.signUp();
    const [idle, inTransaction] = [await postern.connect(organization), await postern.connect(organization)];
    await inTransaction.query('BEGIN; CREATE TABLE half ()');
    const told = once(inTransaction, 'error');
    const server = await installation.postgres();
    process.kill(server.pid, 'SIGKILL');

    expect(['57P01', '57P02', '08006']).toContain((await told)[0].code);
    await eventually('it serves again', async () => (await postern.query(organization, 'SELECT 1')).status === 200);
    expect((await postern.query(organization, "SELECT to_regclass('half') AS half")).body.rows).toEqual([{ half: null }]);
    // Who had nothing under way has not even noticed.
    expect((await idle.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await idle.end();
    expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
  });
});

/** Every call is answered with an error that its description has. */
async function expectDocumented(service: TestService, { apiKey: key, id }: TestOrganization): Promise<void> {
  const { paths } = (await (await fetch(`${service.httpUrl}/api/openapi.json`)).json()) as OpenApiDocument;
  const calls = Object.entries(paths).filter(([path]) => path.startsWith('/api/'));
  for (const [path, methods] of calls) {
    for (const [method, { requestBody, responses }] of Object.entries(methods)) {
      const example = JSON.stringify(requestBody?.content['application/json']?.examples.example?.value ?? null);
      const body = JSON.parse(example.replace(EXAMPLE_ORGANIZATION.id, id)) ?? undefined;
      const { status, body: problem } = await service.call(method.toUpperCase(), path, { key, body });
      const documented = Object.keys(responses[status]?.content['application/problem+json']?.examples ?? {});
      expect({ path, method, status, documented }).toMatchObject({ status: 503, documented: expect.arrayContaining([problem.code]) });
    }
  }
}
