import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Doors, TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type Ended, type Installation, makeInstallation } from '../support/process.ts';
import { PLACEMENTS, startTestService, type TestService, testVariables } from '../support/service.ts';

const run = promisify(execFile);

let installation: Installation;
beforeAll(async () => {
  installation = await makeInstallation();
});
afterAll(() => installation.remove());

async function isServed(doors: Doors, organization: TestOrganization): Promise<void> {
  expect((await doors.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  const client = await doors.connect(organization);
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  await client.end();
}

async function isRefused(doors: Doors, organization: TestOrganization): Promise<void> {
  expect(await doors.query(organization, 'SELECT 1')).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
  await expect(doors.connect(organization)).rejects.toMatchObject({ severity: 'FATAL', code: '28P01' });
}

/** What an operator does is done in another process: this one is told of it. */
function isTold(doors: Doors, organization: TestOrganization, status: number): Promise<void> {
  return eventually(`it answers with ${status}`, async () => (await doors.query(organization, 'SELECT 1')).status === status);
}

const lastWordsOf = async (client: pg.Client) => (await once(client, 'error'))[0];
const said = (line: string): Ended => ({ code: 0, signal: null, stdout: `${line}\n`, stderr: '' });

describe.each(PLACEMENTS)('beside a service that puts organizations into a %s', (placement) => {
  /** For what does not touch where an organization's data lives. */
  const itOnce = it.runIf(placement === 'database');
  let variables: Record<string, string>;
  let service: TestService;
  beforeAll(async () => {
    variables = { ...testVariables(), POSTERN_PLACEMENT: placement };
    service = await startTestService(variables);
  });
  afterAll(() => service.close());

  const admin = (...words: string[]) => installation.admin(words, variables);

  /** Entries of the audit log that an operator has caused, the oldest first. */
  async function auditOf({ id }: TestOrganization): Promise<string[]> {
    const { data } = await service.service.router.catalog.audit.list(id, { limit: 100 });
    return data
      .filter(({ surface }) => surface === 'admin')
      .map(({ action }) => action)
      .reverse();
  }

  itOnce('org list shows everybody, and nothing that a terminal would obey', async () => {
    const [first, second] = [await service.signUp('Acme'), await service.signUp('Evil \u200dCorp')];
    const { code, stdout, stderr } = await admin('org', 'list');
    expect([code, stderr]).toEqual([0, '']);
    const lines = stdout.split('\n');
    expect(lines[0]).toMatch(/^ID +STATUS +CLUSTER +PLACEMENT +CREATED +NAME +E-MAIL$/);
    const line = (of: TestOrganization) => lines.find((text) => text.startsWith(of.id));
    expect(line(first)).toMatch(new RegExp(`^${first.id}  active  default  ${placement} +20\\d\\d-[-0-9T:.]+Z  Acme +${first.email}$`));
    expect(line(second)).toContain('  Evil \ufffdCorp  ');
  });

  itOnce('shows organizations, keys, sessions, statistics and audit logs, in parts and as JSON', async () => {
    const [organization, other] = [await service.signUp('Shown'), await service.signUp('Later')];
    const json = async (...words: string[]) => {
      const { code, stdout, stderr } = await admin(...words, '--json');
      expect([code, stderr], words.join(' ')).toEqual([0, '']);
      return JSON.parse(stdout);
    };
    const client = await service.connect(organization, { application_name: 'report' });
    await client.query('BEGIN');

    expect(await json('org', 'rename', organization.id, 'Renamed')).toMatchObject({ id: organization.id, name: 'Renamed' });
    expect(await json('org', 'show', organization.id)).toMatchObject({
      name: 'Renamed',
      email: organization.email,
      placement,
      isPaused: false,
      keys: 1,
      clones: [],
      sessions: 1,
      backends: 1,
    });
    expect((await admin('org', 'show', organization.id)).stdout).toMatch(/^name +Renamed$/m);
    expect(await json('org', 'list', '--after', organization.id, '--limit', '1')).toEqual({
      data: [expect.objectContaining({ id: other.id })],
      nextAfter: null,
    });
    expect((await admin('org', 'list', '--limit', '1')).stdout).toMatch(/\nmore: --after org_[a-z0-9]{12}\n$/);

    const [key] = (await json('key', 'list', organization.id)).data;
    expect(key).toMatchObject({ id: expect.stringMatching(/^key_/), scope: 'admin', prefix: organization.apiKey.slice(0, 10) });
    expect(JSON.stringify(key)).not.toMatch(/verifier|digest/);

    const [session] = (await json('session', 'list', organization.id)).data;
    expect(session).toMatchObject({ door: 'wire', state: 'idle in transaction', applicationName: 'report', sourceIp: '127.0.0.1' });
    const end = lastWordsOf(client);
    expect(await json('session', 'kill', session.id)).toEqual({ id: session.id, organizationId: organization.id });
    expect(await end).toMatchObject({ code: '57P01' });

    const { data } = await json('stats');
    expect(data.find(({ organizationId }: { organizationId: string }) => organizationId === organization.id).now.requests).toBe(1);

    await eventually('the audit log has it', async () => (await auditOf(organization)).includes('sessions.end'));
    expect((await json('audit', 'show', organization.id, '--limit', '2')).data).toHaveLength(2);
    expect(await json('audit', 'verify', organization.id)).toMatchObject({ ok: true });
    const exported = (await admin('audit', 'export', organization.id)).stdout.trimEnd().split('\n');
    expect(exported.map((line) => JSON.parse(line).action).at(-1)).toBe('auth.signup');

    expect(await json('key', 'revoke', key.id)).toEqual({ id: key.id, organizationId: organization.id });
    await isTold(service, organization, 401);
    for (const words of [
      ['org', 'show', 'org_000000000000'],
      ['key', 'list', 'org_000000000000'],
      ['key', 'revoke', key.id],
      ['session', 'list', 'org_000000000000'],
      ['session', 'kill', session.id],
      ['audit', 'export', 'org_000000000000'],
      ['org', 'list', '--after', 'org_000000000000'],
    ]) {
      expect((await admin(...words)).code, words.join(' ')).toBe(3);
    }
    expect((await admin('org', 'show')).code).toBe(2);
    expect(await admin('top')).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(/on a terminal, and here is none/) });
    expect((await json('audit', 'show', 'operator')).data).toEqual([]);
    expect(await json('audit', 'verify', 'operator')).toMatchObject({ ok: true, count: 0 });
  });

  it('org limits sets limits of its own, for clones too, and the defaults again', async () => {
    const organization = await service.signUp();
    const limits = async (id: string, ...words: string[]) => {
      const { code, stdout, stderr } = await admin('org', 'limits', id, ...words, '--json');
      expect([code, stderr], words.join(' ')).toEqual([0, '']);
      return JSON.parse(stdout);
    };
    const none = { diskBytes: null, sessions: null, requestsPerSecond: null, statementMs: null };
    expect(await limits(organization.id)).toEqual({
      id: organization.id,
      own: none,
      inForce: { diskBytes: null, sessions: 1_000, requests: 256, requestsPerSecond: null, statementMs: 0, httpStatementMs: 300_000 },
    });
    expect(await limits(organization.id, '--disk', '10GB', '--sessions', '20', '--requests-per-second', '5')).toMatchObject({
      own: { diskBytes: 10 * 2 ** 30, sessions: 20, requestsPerSecond: 5, statementMs: null },
      inForce: { diskBytes: 10 * 2 ** 30, sessions: 20, requests: 20, requestsPerSecond: 5 },
    });
    expect((await admin('org', 'limits', organization.id, '--statement-ms', '2000')).stdout).toBe(
      `LIMIT                OWN          IN FORCE
disk bytes           10737418240  10737418240
sessions             20           20
requests per second  5            5
statement ms         2000         2000
`,
    );
    const [reset, ...rest] = [await limits(organization.id, '--reset', '--disk', '1.5MB'), await auditOf(organization)];
    expect(reset.own).toEqual({ ...none, diskBytes: 1_572_864 });
    expect(rest).toEqual([['organization.limits', 'organization.limits', 'organization.limits']]);

    expect((await admin('org', 'limits', 'org_000000000000', '--sessions', '1')).code).toBe(3);
    expect(await admin('org', 'limits', organization.id, '--disk', '10')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--disk is a size with a unit'),
    });
  });

  itOnce('org suspend ends sessions at once and refuses the key until org resume', async () => {
    const organization = await service.signUp();
    const [idle, busy] = [await service.connect(organization), await service.connect(organization)];
    const end = lastWordsOf(idle);
    const running = busy.query('SELECT pg_sleep(60)');
    running.catch(() => {});

    expect(await admin('org', 'suspend', organization.id)).toEqual(said(`${organization.id} is suspended`));
    const suspended = { severity: 'FATAL', code: '28000', message: `organization "${organization.id}" is suspended` };
    expect(await end).toMatchObject(suspended);
    await expect(running).rejects.toMatchObject(suspended);
    expect(await service.query(organization, 'SELECT 1')).toMatchObject({ status: 403, body: { code: 'organization_suspended' } });
    await expect(service.connect(organization)).rejects.toMatchObject(suspended);
    expect(await admin('org', 'suspend', organization.id)).toEqual(said(`${organization.id} is suspended`));

    expect(await admin('org', 'resume', organization.id)).toEqual(said(`${organization.id} is active`));
    await isTold(service, organization, 200);
    await isServed(service, organization);
    expect(await auditOf(organization)).toEqual(['organization.suspended', 'organization.active']);
  });

  it('org drop removes everything but the audit log, and the e-mail address is free again', async () => {
    const [organization, other] = [await service.signUp(), await service.signUp()];
    await service.query(organization, 'CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY, body text)');
    const session = await service.connect(organization);
    await session.query('BEGIN; LOCK TABLE notes');
    const end = lastWordsOf(session);

    expect(await admin('org', 'drop', organization.id, '--yes')).toEqual(said(`${organization.id} is dropped`));
    expect(await end).toMatchObject({ severity: 'FATAL', code: '57P01' });
    await isRefused(service, organization);
    expect(await leftOf(organization)).toEqual([]);
    expect(await auditOf(organization)).toEqual(['organization.dropping', 'organization.dropped']);
    expect(await service.service.router.catalog.audit.verify(organization.id)).toMatchObject({ ok: true });

    const again = await service.call('POST', '/api/auth/signup', { body: { orgName: 'Again', email: organization.email } });
    expect(again.status).toBe(201);
    await isServed(service, other);
    for (const words of [
      ['org', 'resume'],
      ['key', 'issue'],
    ]) {
      const { code, stdout, stderr } = await admin(...words, organization.id);
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(new RegExp(`^postern: organization "${organization.id}" is dropped\\b[^\n]+\n$`));
    }
  });

  it('a drop that was cut short is completed at the next start', async () => {
    const organization = await service.signUp();
    await service.query(organization, 'CREATE TABLE notes ()');
    await service.service.router.catalog.organizations.setStatus(organization.id, 'dropping', { surface: 'admin', sourceIp: '127.0.0.1' });
    await service.close();
    service = await startTestService(variables);
    await isRefused(service, organization);
    expect(await leftOf(organization)).toEqual([]);
    expect(await auditOf(organization)).toEqual(['organization.dropping', 'organization.dropped']);
  });

  itOnce('org drop asks at a terminal, and refuses where there is none', async () => {
    const organization = await service.signUp('Evil \u200dCorp');
    const refused = `postern: nothing was dropped: org drop asks first, and here is no terminal; give --yes to drop ${organization.id}\n`;
    expect(await admin('org', 'drop', organization.id)).toEqual({ code: 1, signal: null, stdout: '', stderr: refused });
    const wrong = await installation.adminAtTerminal(['org', 'drop', organization.id], 'yes', variables);
    expect(wrong.stdout).toContain(
      `This removes Evil \ufffdCorp (${organization.email}) with all its data, for good. Type its id to go on: `,
    );
    expect([wrong.code, wrong.stdout]).toEqual([1, expect.stringContaining(`nothing was dropped: that is not ${organization.id}`)]);
    await isServed(service, organization);

    const right = await installation.adminAtTerminal(['org', 'drop', organization.id], organization.id, variables);
    expect([right.code, right.stdout]).toEqual([0, expect.stringContaining(`${organization.id} is dropped`)]);
    await isTold(service, organization, 401);
    await isRefused(service, organization);
  });

  it('org create makes an organization and shows its key once', async () => {
    const email = `jörg.${placement}@bücher.example`;
    const { code, stdout, stderr } = await admin('org', 'create', 'Äcme', email);
    expect([code, stderr]).toEqual([0, '']);
    const [, id = '', apiKey = ''] =
      /^(org_\w{12}) is active; its key, shown only now:\n\nexport ORG=\1 API_KEY=(pst_\w{36})\n$/.exec(stdout) ?? [];
    const organization = { id, apiKey, orgName: 'Äcme', email };
    await isServed(service, organization);
    expect(await auditOf(organization)).toEqual(['auth.signup']);
    expect(await admin('org', 'create', 'Again', email)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('exists already'),
    });
  });

  itOnce('key issue gives a new key for a lost one, which is dead with its sessions; those of programs go on', async () => {
    const organization = await service.signUp();
    const forProgram = { name: 'program', scope: 'write' };
    const { body: made } = await service.call('POST', '/api/keys', { key: organization.apiKey, body: forProgram });
    const end = lastWordsOf(await service.connect(organization));
    const { code, stdout, stderr } = await admin('key', 'issue', organization.id);
    expect([code, stderr]).toEqual([0, '']);
    const [, apiKey = ''] = new RegExp(`^the new key of ${organization.id}, shown only now: (pst_[0-9A-Za-z]{36})\n$`).exec(stdout) ?? [];
    expect(await end).toMatchObject({ severity: 'FATAL', code: '57P01' });
    await isRefused(service, organization);
    await isServed(service, { ...organization, apiKey });
    await isServed(service, { ...organization, apiKey: made.apiKey });
    expect(await auditOf(organization)).toEqual(['key.issued']);
  });
});

describe('in a service with organizations of both kinds', () => {
  it('each is found where it was put, whatever the setting says now', async () => {
    const variables = testVariables();
    const organizations: TestOrganization[] = [];
    for (const placement of [...PLACEMENTS, 'database']) {
      const service = await startTestService({ ...variables, POSTERN_PLACEMENT: placement });
      organizations.push(await service.signUp());
      for (const organization of organizations) {
        await isServed(service, organization);
        await service.query(organization, 'CREATE TABLE IF NOT EXISTS notes (body text)');
      }
      await service.close();
    }
    for (const { id } of organizations)
      expect(await installation.admin(['org', 'drop', id, '--yes'], variables)).toEqual(said(`${id} is dropped`));
    for (const organization of organizations) expect(await leftOf(organization)).toEqual([]);
  });
});

describe('beside a Postern with its own PostgreSQL', () => {
  it('finds it by its data directory, while it runs', async () => {
    const postern = await installation.start();
    const organization = await postern.signUp();
    expect(await installation.admin(['org', 'suspend', organization.id])).toEqual(said(`${organization.id} is suspended`));
    await isTold(postern, organization, 403);
    expect(await installation.admin(['org', 'resume', organization.id])).toEqual(said(`${organization.id} is active`));
    await isTold(postern, organization, 200);
    await isServed(postern, organization);
    expect(await installation.admin(['org', 'drop', organization.id, '--yes'])).toEqual(said(`${organization.id} is dropped`));
    await isTold(postern, organization, 401);
    await isRefused(postern, organization);

    await postern.end('SIGTERM');
    const { code, stdout, stderr } = await installation.admin(['org', 'list']);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toBe(`postern: no Postern that this user can see runs on the data directory ${installation.dataDir}: start it first\n`);
  });
});

describe('a command line that', () => {
  it('makes no command is answered with those that are known', async () => {
    const { code, stdout, stderr } = await installation.admin(['org', 'drop']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^usage: postern admin <command>\n/);
  });

  it('names a control database that is not there makes none', async () => {
    const variables = testVariables();
    const { code, stderr } = await installation.admin(['org', 'list'], variables);
    expect([code, stderr]).toEqual([
      1,
      `postern: no Postern has been started there with the control database ${variables.POSTERN_CONTROL_DATABASE}\n`,
    ]);
    const made = await asSuperuser('postgres', 'SELECT FROM pg_database WHERE datname = $1', [variables.POSTERN_CONTROL_DATABASE]);
    expect(made).toEqual([]);
  });

  it('comes with another secret does not change the passwords that the service uses', async () => {
    const variables = testVariables();
    const service = await startTestService(variables);
    const nobody = await installation.admin(['org', 'drop', 'org_000000000000', '--yes'], variables);
    expect(nobody).toEqual({ code: 3, signal: null, stdout: '', stderr: 'postern: there is no organization "org_000000000000"\n' });
    const { code, stderr } = await installation.admin(['org', 'list'], { ...variables, POSTERN_SECRET: 'not the secret of the service' });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^postern: the role postern_platform cannot log in to [^\n]+\n$/);
    await isServed(service, await service.signUp());
    await service.close();
  });
});

describe('completion', () => {
  it.each(['bash', 'zsh'])('of %s', async (shell) => {
    const { code, stdout, stderr } = await installation.admin(['completion', shell]);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('complete -F _postern postern');
  });

  it('has every command and option, as bash reads it', async () => {
    const { stdout } = await installation.admin(['completion', 'bash']);
    const complete = async (...words: string[]) => {
      const script = `${stdout}\nCOMP_WORDS=(postern "$@"); COMP_CWORD=$#; _postern; printf '%s\\n' "\${COMPREPLY[@]}"`;
      return (await run('bash', ['-c', script, 'bash', ...words])).stdout.trimEnd().split('\n');
    };
    expect(await complete('a')).toEqual(['admin']);
    expect(await complete('admin', 's')).toEqual(['session', 'stats']);
    expect(await complete('admin', 'key', '')).toEqual(['list', 'issue', 'revoke']);
    expect(await complete('admin', 'org', 'list', '--')).toEqual(['--limit', '--after', '--json']);
  });
});

async function leftOf({ id }: TestOrganization): Promise<object[]> {
  const shared = 'SELECT rolname AS name FROM pg_roles WHERE rolname = $1 UNION SELECT datname FROM pg_database WHERE datname = $1';
  return asSuperuser('postern_shared', `${shared} UNION SELECT nspname FROM pg_namespace WHERE nspname = $1`, [id]);
}

async function asSuperuser(database: string, sql: string, values: unknown[]): Promise<object[]> {
  const client = new pg.Client({ ...inject('cluster'), database });
  await client.connect();
  try {
    return (await client.query(sql, values)).rows;
  } finally {
    await client.end();
  }
}
