import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { atService, DOCUMENTED, EXAMPLES, exportedVariables, REPOSITORY, textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { type JsonReply, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

const run = promisify(execFile);

/** The documented organization stands for the one that the first example makes. */
let organization: TestOrganization = DOCUMENTED;
let service: TestService;
let scratch: Scratch;
let variables: Record<string, string>;

beforeAll(async () => {
  scratch = await makeScratch();
  variables = testVariables();
  service = await startTestService(variables);
});
afterAll(async () => {
  await service.close();
  await scratch.remove();
});

describe('the examples of the documents, in their order', () => {
  it('are all below, in clusters.test.ts, backups.test.ts and operator-console.test.ts, in dumps.test.ts, moves.test.ts, readme.test.ts and traces.test.ts of test/clients, or in test/operate', () => {
    const sections = (wanted: string) => EXAMPLES.filter(({ language }) => language === wanted).map(({ section }) => section);
    const calls = [
      'Sign up',
      'Query over HTTP',
      'Keys',
      'Clones',
      'Several statements, all or none',
      "Row security for an application's users",
      'Migrations',
      'Saved queries',
      'Sessions',
      'Audit',
    ];
    expect(sections('curl')).toEqual(calls);
    expect(sections('js')).toEqual(['An ORM', 'Node (pg)', 'The Neon driver', 'Serverless drivers', 'Traces']);
    expect(sections('yaml')).toEqual(['With Patroni']);
    for (const language of ['ini', 'sh', 'bash']) expect(sections(language)).toEqual(['With pgBackRest', 'With Barman']);
    expect(sections('conf')).toEqual(['With pgBackRest']);
    expect(sections('sql')).toEqual(['psql', "Row security for an application's users", 'A Postgres of your own', 'With Barman']);
    expect(sections('json')).toEqual(['Sign up', 'Query over HTTP', 'Errors']);
    expect(['python', 'java', 'ts'].flatMap(sections)).toEqual(['Python (psycopg 3)', 'Java (JDBC)', 'Prisma']);
    // No Go is needed to run the tests: it is the one that is not run.
    expect(sections('go')).toEqual(['Go (pgx)']);
    const shell = [
      'Start',
      'Start',
      'Start',
      'Sign up',
      'psql',
      'Limits',
      'Limits of pooling',
      'Embedded PostgreSQL',
      'Embedded PostgreSQL',
    ];
    const operating = [
      'Docker',
      'Docker',
      'Docker',
      'systemd',
      'A Postgres of your own',
      'TLS',
      'What needs attention',
      'Organizations',
      'Organizations',
      'Limits of one organization',
      'Console for operators',
      'Several PostgreSQL servers',
      'TLS between servers',
      'Moving an organization',
      ...Array<string>(4).fill('Of the embedded server'),
      ...Array<string>(4).fill('Of one organization'),
      'Benchmarks',
    ];
    expect(sections('text')).toEqual([...shell, ...operating]);
  });

  it('sign up', async () => {
    const { status, body } = await curl('Sign up');
    expect(status).toBe(201);
    organization = body;
    expect(lasting(body)).toEqual(reply('Sign up'));
    const { stdout } = await shell(`${here(textOf('Sign up', 'text'))}\nprintf '%s ' "$ORG" "$API_KEY" "$DATABASE_URL"`, {});
    const { ORG, API_KEY, DATABASE_URL } = environment();
    expect(stdout).toBe(`${ORG} ${API_KEY} ${DATABASE_URL} `);
    expect(textOf('Sign up', 'text').split('\n')[0]).toBe(`export ORG=${DOCUMENTED.id} API_KEY=${DOCUMENTED.apiKey}`);
  });

  it('make a table through the wire door, with psql', async () => {
    await writeFile(join(scratch.path, 'orders.sql'), textOf('psql', 'sql'));
    const { stdout } = await shell(`${here(textOf('psql', 'text')).trim()} -qv ON_ERROR_STOP=1 -f orders.sql -Atc 'TABLE orders'`);
    expect(stdout).toMatch(/^1\|ada\|12\.50\|.*\n2\|grace\|99\.00\|.*\n$/);
  });

  it('keep a backend', async () => {
    const commands = `-c "SELECT set_config('my.kept', 'yes', false)" -c "SELECT current_setting('my.kept')"`;
    const env = { ...environment(), PGPASSWORD: organization.apiKey };
    expect((await shell(`${here(textOf('Limits of pooling', 'text')).trim()} -At ${commands}`, env)).stdout).toBe('yes\nyes\n');
  });

  it('query over HTTP', async () => {
    const { status, body } = await curl('Query over HTTP');
    expect(status).toBe(200);
    expect(lasting(body)).toEqual(reply('Query over HTTP'));
  });

  it.each(['Node (pg)', 'The Neon driver'])('connect from %s', async (section) => {
    expect(await javascript(section)).toBe("[ { customer: 'grace' } ] ");
  });

  it('make a key for a program', async () => {
    const { status, body } = await curl('Keys');
    expect([status, body.scope]).toEqual([201, 'write']);
    expect((await service.query({ ...organization, apiKey: body.apiKey }, 'SELECT 1')).status).toBe(200);
  });

  it('clone the organization', async () => {
    const { status, body } = await curl('Clones');
    expect([status, body.name]).toEqual([201, 'preview 42']);
    expect((await service.query({ ...organization, apiKey: body.apiKey }, 'SELECT 1')).status).toBe(200);
  });

  it('run several statements', async () => {
    const { status, body } = await curl('Several statements, all or none');
    expect(status).toBe(200);
    expect(body).toMatchObject({ status: 'committed', results: [{ rows: [{ id: '3' }] }, { rowCount: 1 }] });
  });

  it('keep the rows of users apart', async () => {
    const section = "Row security for an application's users";
    const owner = await service.connect(organization);
    await owner.query(textOf(section, 'sql'));
    const { body: made } = await service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'app', scope: 'data' } });
    const { body } = await curl(section, { ...environment(), DATA_KEY: made.apiKey });
    expect(body).toMatchObject({ status: 'committed', results: [{ rowCount: 1 }, { rows: [{ body: 'water the plants' }] }] });

    const as = async (user: string | undefined, sql: string) => {
      const settings = user === undefined ? {} : { settings: { 'app.user_id': user } };
      const reply = await service.call('POST', '/api/query', { key: made.apiKey, body: { sql, ...settings } });
      const { rows, rowCount, sqlstate } = reply.body;
      return reply.status === 200 ? (rows.length > 0 ? rows : rowCount) : [reply.status, sqlstate];
    };
    expect(await as('bert', 'select body from notes')).toBe(0);
    expect(await as(undefined, 'select body from notes')).toBe(0);
    expect(await as('bert', "update notes set body = 'his'")).toBe(0);
    expect(await as('bert', 'delete from notes')).toBe(0);
    expect(await as('bert', "insert into notes (user_id, body) values ('anna', 'forged')")).toEqual([403, '42501']);
    expect(await as('anna', 'select body from notes')).toEqual([{ body: 'water the plants' }]);
    expect((await owner.query('select user_id from notes')).rows).toEqual([{ user_id: 'anna' }]);
    await owner.end();
  });

  it('migrate, once', async () => {
    expect((await curl('Migrations')).body).toMatchObject({ alreadyApplied: false });
    expect((await curl('Migrations')).body).toMatchObject({ alreadyApplied: true });
  });

  it('save a query, and again', async () => {
    const { status, body } = await curl('Saved queries');
    expect([status, body.name]).toEqual([201, 'totals by customer']);
    expect((await service.query(organization, body.sql)).body.rowCount).toBe(3);
    expect((await curl('Saved queries')).status).toBe(200);
  });

  it('list the sessions', async () => {
    const { status, body } = await curl('Sessions');
    expect([status, body.isComplete]).toEqual([200, true]);
    expect(body.sessions).toContainEqual(expect.objectContaining({ door: 'http', isOwn: true }));
  });

  it('show what an error looks like', async () => {
    const { status, body } = await service.query(organization, 'selec');
    expect(status).toBe(400);
    expect(lasting(body)).toEqual(reply('Errors'));
  });

  it('use a serverless driver', async () => {
    const printed = await javascript('Serverless drivers');
    for (const row of ["{ id: '1', customer: 'ada' }", "{ id: '2', customer: 'grace' }"]) expect(printed).toContain(row);
    expect(printed).toContain("[ { count: '3' } ]");
  });

  it('read the audit log', async () => {
    const [asked] = /select id, [^"]+/.exec(textOf('Query over HTTP', 'curl')) ?? [];
    await eventually('the query is in the log', async () => JSON.stringify((await curl('Audit')).body).includes(asked ?? 'nothing'));
  });
});

describe('the examples for operators', () => {
  const blocks = (section: string) => EXAMPLES.filter((one) => one.section === section && one.language === 'text').map(({ text }) => text);
  /** Says what a command was given, in place of carrying it out. */
  const said = (command: string) => `${command}() { printf '%s|' ${command} "$@"; }\n`;

  it('start from a clone, or by npx', async () => {
    const { stdout } = await shell(`${said('npm')}${said('npx')}${blocks('Start')[0]}${blocks('Embedded PostgreSQL')[0]}`);
    expect(stdout).toBe('npm|ci|npm|start|npm|ci|npm|start|npx|postern|');
  });

  it('start with the PostgreSQL of the machine', async () => {
    const { stdout } = await shell(`npx() { printf '%s ' "$POSTERN_POSTGRES_BIN" "$*"; }\n${blocks('Embedded PostgreSQL')[1]}`);
    expect(stdout).toBe('/usr/lib/postgresql/18/bin postern ');
  });

  it('ask what needs attention', async () => {
    const control = new pg.Client({ ...inject('cluster'), database: variables.POSTERN_CONTROL_DATABASE });
    await control.connect();
    await control.query("UPDATE pg_collation SET collversion = '1' WHERE collname = 'und-x-icu'");
    await control.end();
    const lines = textOf('What needs attention', 'text');
    await expect(shell(lines, { ...process.env, ...variables }, REPOSITORY)).rejects.toMatchObject({
      code: 4,
      stdout: expect.stringMatching(/^ATTENTION {2}the PostgreSQL server of the cluster default sorts by version \S+ of ICU, /m),
    });
  });

  it('install a unit, which starts what npm has installed', async () => {
    const [lines = ''] = blocks('systemd');
    const unit = join(scratch.path, 'postern.service');
    const npm = `npm() { case "$1" in root) echo "$PACKAGES";; *) printf '%s|' npm "$@";; esac; }\n`;
    await symlink(REPOSITORY, join(scratch.path, 'postern'));
    const others = `${said('useradd')}${said('systemctl')}postern() { :; }\n`;
    const here = lines.replace('/etc/systemd/system/postern.service', unit);
    const { stdout } = await shell(npm + others + here, { PATH: process.env.PATH, PACKAGES: scratch.path });
    expect(stdout).toMatch(/^npm\|install\|--global\|postern\|useradd\|.*\|postern\|systemctl\|enable\|--now\|postern\|$/);
    const text = await readFile(unit, 'utf8');
    expect(text).toMatch(/^ExecStart=postern$/m);
    expect(text).toMatch(/^StateDirectory=postern$/m);
  });

  it('make two secrets, and start containers from files that there are', async () => {
    await mkdir(join(scratch.path, 'docker'));
    const [secrets = '', up, single = ''] = blocks('Docker');
    expect(blocks('Start')[1]).toContain(secrets.split('\n')[0]);
    const { stdout } = await shell(`${said('docker')}${secrets}${up}${blocks('Organizations')[1]}${single}`);
    expect(await readFile(join(scratch.path, 'docker/.env'), 'utf8')).toMatch(
      /^POSTGRES_PASSWORD=[0-9a-f]{48}\nPOSTERN_SECRET=[0-9a-f]{64}\n$/,
    );
    expect((await stat(join(scratch.path, 'docker/.env'))).mode & 0o777).toBe(0o600);
    const files = [...stdout.matchAll(/-f\|([^|]+)/g)].map(([, file = '']) => file);
    expect(files).toHaveLength(5);
    for (const file of files) expect(existsSync(join(REPOSITORY, file)), file).toBe(true);
    expect(stdout).toContain('|exec|postern|postern|admin|org|list|');
    const [, target = ''] = /\|--target\|([^|]+)\|/.exec(stdout) ?? [];
    expect(await readFile(join(REPOSITORY, 'docker/Dockerfile'), 'utf8')).toMatch(new RegExp(`^FROM \\S+ AS ${target}$`, 'm'));
  });

  it('set up a Postgres of your own', async () => {
    const client = new pg.Client(inject('clusterUrl'));
    await client.connect();
    await client.query('BEGIN');
    const named = (section: string) => textOf(section, 'sql').replaceAll(/\b(?<=ROLE |TO )postern\b/g, `r_${organization.id}`);
    await client.query(named('A Postgres of your own'));
    const { rows } = await client.query('SELECT rolcreatedb, rolcreaterole, rolsuper FROM pg_roles WHERE rolname = $1', [
      `r_${organization.id}`,
    ]);
    await client.query('ROLLBACK');
    await client.end();
    expect(rows).toEqual([{ rolcreatedb: true, rolcreaterole: true, rolsuper: false }]);

    const npx = `npx() { printf '%s ' "$DATABASE_URL" "$POSTERN_SECRET" "$*"; }\n`;
    const lines = textOf('A Postgres of your own', 'text');
    const { stdout } = await shell(npx + lines, { PATH: process.env.PATH, HOME: scratch.path });
    expect(stdout).toMatch(/^postgres:\/\/postern:…@db\.example\/postgres [0-9a-f]{64} postern $/);
    expect(lines).toContain(blocks('Start')[2]?.trim());
  });

  it('connect with TLS', async () => {
    const { stdout } = await shell(`${said('psql')}${textOf('TLS', 'text')}`);
    expect(stdout).toMatch(/^psql\|host=\S+ port=6432 user=(\S+) dbname=\1 sslmode=verify-full sslrootcert=ca\.pem\|$/);
  });

  it('list, create, suspend, clone and drop organizations, issue a key and invite', async () => {
    const other = await service.signUp();
    const lines = textOf('Organizations', 'text').trimEnd().split('\n');
    const admin = async (line = '') => (await shell(atService(line, service, other), { ...process.env, ...variables }, REPOSITORY)).stdout;
    const [list, create, suspend, clone, drop, issue, invite, show, limits, keys, sessions, stats, verify] = lines;
    expect(lines).toHaveLength(13);
    expect(await admin(list)).toContain(other.id);
    expect(await admin(create?.replace('a@acme.test', 'created@acme.test'))).toContain('API_KEY=pst_');
    expect(await admin(clone)).toContain('API_KEY=pst_');
    expect(await admin(limits)).toMatch(/^requests per second +- +any$/m);
    const own = textOf('Limits of one organization', 'text').trimEnd();
    expect(await admin(own)).toMatch(/^requests per second +50 +50$/m);
    const [policy] = textOf('Limits', 'text').split('\n');
    expect(`RateLimit-Policy: ${(await service.query(other, 'SELECT 1')).headers.get('ratelimit-policy')}`).toBe(policy);
    expect(await admin(issue)).toContain('pst_');
    expect(await admin(invite)).toContain('inv_');
    expect(await admin(show)).toContain(other.id);
    expect(await admin(keys)).toContain('admin');
    expect(await admin(sessions)).toMatch(/^ID +ORGANIZATION/);
    expect(await admin(stats)).toMatch(/^organization/i);
    expect(await admin(verify)).toContain('none changed or missing');
    expect(await admin(suspend)).toBe(`${other.id} is suspended\n`);
    expect(await admin(drop?.replace('org drop', 'org drop --yes'))).toContain(other.id);
    expect(await admin(list)).toMatch(new RegExp(`^${other.id} +dropped `, 'm'));
    // Fifteen commands, each a process of its own.
  }, 900_000);

  it('copy the data directory with what its links point to, and dump one organization', async () => {
    await mkdir(join(scratch.path, 'elsewhere'));
    await writeFile(join(scratch.path, 'elsewhere/PG_VERSION'), '18\n');
    await mkdir(join(scratch.path, 'data'));
    await symlink('../elsewhere', join(scratch.path, 'data/postgres'));
    const copy = blocks('Of the embedded server').at(-1);
    const dump = blocks('Of one organization').at(-1);
    await shell(copy ?? '');
    await writeFile(join(scratch.path, 'elsewhere/PG_VERSION'), 'changed\n');
    expect(await readFile(join(scratch.path, 'backup/postgres/PG_VERSION'), 'utf8')).toBe('18\n');
    await shell(`pg_dump() { psql -h "$2" -p "$4" -U "$6" -Atc 'SELECT current_user' "$8"; }\n${here(dump ?? '')}`);
    expect(await readFile(join(scratch.path, 'acme.dump'), 'utf8')).toBe(`${organization.id}\n`);
  });
});

const here = (text: string) => atService(text, service, organization);
const environment = () => exportedVariables(service, organization);
const shell = (script: string, env: NodeJS.ProcessEnv = environment(), cwd = scratch.path) => run('sh', ['-ec', script], { env, cwd });
const reply = (section: string): unknown => lasting(JSON.parse(here(textOf(section, 'json'))));

/** A reply without what differs from call to call: instants keep their precision, ids of keys their prefix, durations and request ids only their type. */
function lasting(body: unknown): unknown {
  const digitless = JSON.stringify(body).replace(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, (instant) => instant.replace(/\d/g, '0'));
  return JSON.parse(digitless.replace(/"key_[a-z0-9]{12}"/g, '"key_…"'), (name, value) =>
    ['durationMs', 'requestId'].includes(name) ? typeof value : value,
  );
}

/** A real shell reads the line; `curl` itself need not be there. */
async function curl(section: string, env: Readonly<Record<string, string | undefined>> = environment()): Promise<JsonReply> {
  const { stdout } = await shell(`curl() { printf '%s\\0' "$@"; }\n${here(textOf(section, 'curl'))}`, env);
  const words = stdout.split('\0');
  const url = new URL(words.find((word) => word.startsWith('http://')) ?? '');
  const after = (option: string) => words.flatMap((word, i) => (word === option ? [words[i + 1] ?? ''] : []));
  const headers = Object.fromEntries(after('-H').map((header) => header.split(': ', 2)));
  const [body] = after('-d');
  const [method = body === undefined ? 'GET' : 'POST'] = after('-X');
  return service.call(method, `${url.pathname}${url.search}`, { headers, ...(body === undefined ? {} : { body }) });
}

/** What it prints, on one line. A comment says what Node 20 needs besides. */
async function javascript(section: string): Promise<string> {
  const text = here(textOf(section, 'js'));
  const code = 'WebSocket' in globalThis ? text : text.replace(/^\/\/ Node 20 .*?: /m, '');
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], { cwd: REPOSITORY, env: environment() });
  return stdout.replace(/\s+/g, ' ');
}
