import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { readDocument } from '../support/documents.ts';
import type { TestOrganization } from '../support/doors.ts';
import { type InstalledPackage, installPackage } from '../support/package.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const run = promisify(execFile);
const NODES = [20, 22, 24, 26] as const;

/** In the packages that package.json has for this machine: those that npm's `node` and `bun` bring. */
const nodePath = (major: number) => packaged(`node-${major}-linux-${process.arch}/bin/node`);
const bunPath = () => packaged(`@oven/bun-linux-${process.arch === 'arm64' ? 'aarch64' : process.arch}/bin/bun`);

function packaged(file: string): string {
  const path = fileURLToPath(new URL(`node_modules/${file}`, import.meta.url));
  if (!existsSync(path)) throw new Error(`${path} is not there: npm run test:runtimes installs it, on Linux on x64 and arm64`);
  return path;
}

let scratch: Scratch;
let installed: InstalledPackage;
beforeAll(async () => {
  scratch = await makeScratch();
  installed = await installPackage(scratch.path);
});
afterAll(() => scratch.remove());

describe.each([
  ...NODES.map((major) => ({ name: `Node ${major}`, version: `v${major}.`, path: () => nodePath(major) })),
  { name: 'Bun 1.4', version: '1.4.', path: bunPath },
])('$name', ({ version, path }) => {
  let installation: Installation;
  let postern: PosternProcess;
  let organization: TestOrganization;
  beforeAll(async () => {
    installation = await makeInstallation({ command: [path(), installed.bin] });
    postern = await installation.start();
    organization = await postern.signUp();
  });
  afterAll(() => installation.remove());

  const psql = (...words: readonly string[]) =>
    run('psql', ['-h', '127.0.0.1', '-p', String(postern.wirePort), '-U', organization.id, '-XAt', ...words, organization.id], {
      env: { PATH: process.env.PATH, PGPASSWORD: organization.apiKey },
    });

  it('is the runtime that is meant, and has the command line', async () => {
    expect((await run(path(), ['--version'])).stdout.startsWith(version)).toBe(true);
    const { version: own } = JSON.parse(readDocument('package.json'));
    expect(await run(path(), [installed.bin, '--version'])).toEqual({ stdout: `${own}\n`, stderr: '' });
  });

  it('serves psql: scripts, COPY both ways and errors', async () => {
    const input = "CREATE TABLE orders (id int PRIMARY KEY, customer text); INSERT INTO orders VALUES (1, 'ada')";
    expect(await psql('-c', input)).toEqual({ stdout: 'CREATE TABLE\nINSERT 0 1\n', stderr: '' });
    await psql('-c', '\\copy orders FROM PROGRAM \'seq -f "%.0f,c" 2 20000\' CSV');
    expect((await psql('-c', '\\copy (SELECT count(*), max(id) FROM orders) TO STDOUT')).stdout).toBe('20000\t20000\n');
    await expect(psql('-c', 'SELECT nothing')).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining('column "nothing" does not exist'),
    });
  });

  it('serves a driver: named statements that follow it from backend to backend, transactions, errors, notifications', async () => {
    const clients = await Promise.all(Array.from({ length: 20 }, () => postern.connect(organization)));
    const [client, other] = clients as [(typeof clients)[0], (typeof clients)[0]];
    const add = { name: 'add', text: 'SELECT $1::int + $2::int AS sum, $3::text AS note' };
    for (let round = 0; round < 5; round += 1) {
      const sums = clients.map(async (each, n) => (await each.query({ ...add, values: [n, round, 'äöü'] })).rows);
      expect(await Promise.all(sums)).toEqual(clients.map((_, n) => [{ sum: n + round, note: 'äöü' }]));
    }
    await expect(client.query({ ...add, values: ['x', 1, ''] })).rejects.toMatchObject({ code: '22P02' });
    await client.query('BEGIN; CREATE TABLE undone ()');
    await client.query('ROLLBACK');
    expect((await client.query("SELECT to_regclass('undone') AS undone")).rows).toEqual([{ undone: null }]);
    await client.query('LISTEN news');
    const told = once(client, 'notification');
    await other.query("NOTIFY news, 'hello'");
    expect((await told)[0]).toMatchObject({ channel: 'news', payload: 'hello' });
    const { rows } = await client.query("SELECT repeat('x', 1000) AS filler FROM generate_series(1, 20000)");
    expect(rows).toHaveLength(20_000);
    await Promise.all(clients.map((each) => each.end()));
  });

  it('serves HTTP: queries, one of 20 MB, transactions that commit or do nothing, errors and pages', async () => {
    const reply = await postern.query(organization, 'SELECT $1::int + 1 AS n', [1]);
    expect(reply).toMatchObject({ status: 200, body: { rows: [{ n: 2 }], rowCount: 1 } });
    const large = await postern.query(organization, "SELECT repeat('x', 1000) AS filler FROM generate_series(1, 20000)");
    expect(large.body.rows).toHaveLength(20_000);
    const transaction = (...statements: readonly string[]) =>
      postern.call('POST', '/api/transaction', { key: organization.apiKey, body: { statements: statements.map((sql) => ({ sql })) } });
    expect(await transaction('CREATE TABLE notes (body text UNIQUE)', "INSERT INTO notes VALUES ('a')")).toMatchObject({
      status: 200,
      body: { status: 'committed' },
    });
    expect((await transaction("INSERT INTO notes VALUES ('b')", "INSERT INTO notes VALUES ('a')")).body.sqlstate).toBe('23505');
    expect((await postern.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'a' }]);
    expect(await postern.query(organization, 'SELECT nothing')).toMatchObject({ status: 400, body: { sqlstate: '42703' } });
    for (const page of ['/console', '/docs', '/api/openapi.json'])
      expect((await fetch(`${postern.httpUrl}${page}`)).status, page).toBe(200);
    const metrics = await fetch(`${postern.opsUrl}/metrics`);
    expect(await metrics.text()).toContain('postern_');
  });

  it('refuses a wrong key at both doors', async () => {
    const wrong = { ...organization, apiKey: (await postern.signUp()).apiKey };
    expect(await postern.query({ ...wrong, apiKey: `${wrong.apiKey}x` }, 'SELECT 1')).toMatchObject({ status: 401 });
    await expect(postern.connect(wrong)).rejects.toMatchObject({ severity: 'FATAL', code: '28P01' });
  });

  it('rotates a key: sessions of the former one end, and only the new one is let in', async () => {
    const session = await postern.connect(organization);
    const ended = once(session, 'error');
    const { status, body } = await postern.call('POST', '/api/auth/rotate-key', { key: organization.apiKey });
    expect(status).toBe(200);
    expect((await ended)[0]).toMatchObject({ code: '57P01' });
    expect((await postern.query(organization, 'SELECT 1')).status).toBe(401);
    await expect(postern.connect(organization)).rejects.toMatchObject({ code: '28P01' });
    organization = { ...organization, apiKey: body.apiKey };
    await (await postern.connect(organization)).end();
    expect((await postern.query(organization, 'SELECT 1')).status).toBe(200);
  });

  it('has everything that was committed after kill -9 and another start', async () => {
    await postern.query(organization, "INSERT INTO notes VALUES ('kept')");
    expect(await postern.end('SIGKILL')).toMatchObject({ signal: 'SIGKILL' });
    postern = await installation.start();
    expect((await psql('-c', "SELECT body FROM notes WHERE body = 'kept'")).stdout).toBe('kept\n');
    expect((await postern.query(organization, 'SELECT count(*)::int AS n FROM orders')).body.rows).toEqual([{ n: 20_000 }]);
  });

  it('stops on SIGTERM: clients are told, and nothing that it started is left', async () => {
    const session = await postern.connect(organization);
    const told = once(session, 'error');
    const server = await installation.postgres();
    const ended = postern.end('SIGTERM');
    expect((await told)[0]).toMatchObject({ code: '57P01' });
    expect(await ended).toMatchObject({ code: 0, signal: null, stderr: '' });
    expect(await server.isRunning()).toBe(false);
  });

  it('starts again with TLS at both doors, to which logins are bound', async () => {
    const files = { POSTERN_TLS_CERT: join(scratch.path, 'cert.pem'), POSTERN_TLS_KEY: join(scratch.path, 'key.pem') };
    await writeFile(files.POSTERN_TLS_CERT, CERTIFICATE);
    await writeFile(files.POSTERN_TLS_KEY, CERTIFICATE_KEY);
    postern = await installation.start(files);
    const env = { PATH: process.env.PATH, PGPASSWORD: organization.apiKey, PGSSLMODE: 'require', PGCHANNELBINDING: 'require' };
    const words = ['-h', '127.0.0.1', '-p', String(postern.wirePort), '-U', organization.id, '-XAtc', 'SELECT 1', organization.id];
    expect(await run('psql', words, { env })).toEqual({ stdout: '1\n', stderr: '' });
    const headers = { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json' };
    const url = `https://127.0.0.1:${new URL(postern.httpUrl).port}/api/query`;
    const sent = request(url, { method: 'POST', ca: CERTIFICATE, headers });
    sent.end(JSON.stringify({ sql: 'SELECT 1 AS one' }));
    const [reply] = await once(sent, 'response');
    expect(JSON.parse(await text(reply))).toMatchObject({ rows: [{ one: 1 }] });
    expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
  });
});

it.each(NODES)('npm ci does not warn of packages for other versions than Node %i', async (major) => {
  const clone = join(scratch.path, `clone-${major}`);
  await mkdir(clone);
  for (const file of ['package.json', 'package-lock.json']) await writeFile(join(clone, file), readDocument(file));
  const npm = await realpath((await run('sh', ['-c', 'command -v npm'])).stdout.trim());
  const { stderr } = await run(nodePath(major), [npm, 'ci', '--dry-run', '--offline'], { cwd: clone });
  expect(stderr).not.toContain('EBADENGINE');
});
