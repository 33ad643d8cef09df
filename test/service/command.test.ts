import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, cp, mkdir, readdir, readFile, realpath, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { banner } from '../../src/banner.ts';
import { readConfig } from '../../src/config.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BIN = join(ROOT, 'src/bin.cjs');

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Anywhere but in the repository's folder. */
async function node(...words: readonly string[]): Promise<Ended> {
  return run(process.execPath, words, { cwd: '/' }).then(
    (ended) => ({ code: 0, ...ended }),
    (failed: Ended) => failed,
  );
}

describe('the command line', () => {
  let scratch: Scratch;
  beforeAll(async () => {
    scratch = await makeScratch();
  });
  afterAll(() => scratch.remove());

  it.each(['--help', '-h', 'help'])('describes itself for %s, and starts nothing', async (word) => {
    const { code, stdout, stderr } = await node(BIN, word);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^usage: postern \[command\]\n/);
  });

  it.each(['--version', '-V'])('says its version for %s', async (word) => {
    const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    expect(await node(BIN, word)).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: '' });
  });

  it.each([
    [['frobnicate'], 'there is no command frobnicate'],
    [['start', '--now'], 'start takes no arguments: --now'],
  ] as const)('starts nothing for %j', async (words, reason) => {
    const { code, stdout, stderr } = await node(BIN, ...words);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(new RegExp(`^postern: ${reason}\n\nusage: postern`));
  });

  it('has the commands of operators', async () => {
    const { code, stderr } = await node(BIN, 'admin');
    expect(code).toBe(2);
    expect(stderr).toContain('org suspend <id>');
  });

  it('says in one line that Node is too old', async () => {
    const old = "Object.defineProperty(process.versions, 'node', { value: '16.20.2' })";
    expect(await node('-e', `${old}; require(${JSON.stringify(BIN)})`)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: 'postern: it needs Node 20 or later; this is 16.20.2\n',
    });
  });

  it('says in one line where nothing can compile it, and runs what is there', async () => {
    const folder = join(scratch.path, 'a#b', 'src');
    await mkdir(folder, { recursive: true });
    for (const name of ['bin.cjs', 'launch.cjs', 'build.cjs', 'command.ts']) await copyFile(join(ROOT, 'src', name), join(folder, name));
    const hidden = "Object.defineProperty(process.features, 'typescript', { value: false })";
    const start = () => node('-e', `${hidden}; require(${JSON.stringify(join(folder, 'bin.cjs'))})`);
    const refused = await start();
    expect([refused.code, refused.stdout]).toEqual([1, '']);
    expect(refused.stderr).toMatch(/^postern: it is not compiled[^\n]+\n$/);

    await mkdir(join(folder, '../dist/src'), { recursive: true });
    await writeFile(join(folder, '../dist/src/command.js'), "console.log('runs');");
    const { code, stdout, stderr } = await start();
    expect([code, stdout]).toEqual([0, 'runs\n']);
    expect(stderr).toMatch(/^postern: what runs is older than its sources[^\n]+\n$/);
  });
});

it('a build that is told to stop leaves neither a compiler nor a folder behind', async () => {
  const scratch = await makeScratch();
  const folder = join(scratch.path, 'clone');
  for (const name of [
    'src',
    'proxy',
    'http',
    'test/bench',
    'test/support',
    'test/attacks',
    'test/conversations',
    'package.json',
    'tsconfig.json',
  ]) {
    await cp(join(ROOT, name), join(folder, name), { recursive: true });
  }
  await symlink(await realpath(join(ROOT, 'node_modules')), join(folder, 'node_modules'));
  const build = spawn(process.execPath, [join(folder, 'src/build.cjs')], { stdio: 'ignore' });
  const ended = once(build, 'exit');
  const compilers = async () => (await run('ps', ['-Ao', 'args'])).stdout.split('\n').filter((line) => line.includes(`--outDir ${folder}`));
  await eventually('the compiler runs', async () => (await compilers()).length > 1);
  build.kill('SIGTERM');
  expect(await ended).toEqual([143, null]);
  await eventually('it has ended', async () => (await compilers()).length === 0);
  expect((await readdir(folder)).filter((name) => name.startsWith('dist'))).toEqual([]);
  await scratch.remove();
});

it('a start that has built the console first keeps no process of the build', async () => {
  const scratch = await makeScratch();
  const folder = join(scratch.path, 'clone');
  const packages = await realpath(join(ROOT, 'node_modules'));
  for (const name of ['src', 'http']) await cp(join(ROOT, name), join(folder, name), { recursive: true });
  // Only the console is built: this compiler makes its folder and no more.
  await mkdir(join(folder, 'node_modules/typescript/bin'), { recursive: true });
  await writeFile(join(folder, 'node_modules/typescript/bin/tsc'), 'require("node:fs").mkdirSync(process.argv.at(-1))');
  for (const name of await readdir(packages)) {
    if (name !== 'typescript') await symlink(join(packages, name), join(folder, 'node_modules', name));
  }
  const build = JSON.stringify(join(folder, 'src/build.cjs'));
  const started = spawn(process.execPath, ['-e', `require(${build}).build().then(console.log); setInterval(() => {}, 60_000)`]);
  const ended = once(started, 'exit');
  expect(String((await once(started.stdout, 'data'))[0])).toBe('0\n');
  expect(await readdir(join(folder, 'dist/console'))).toContain('index.html');
  const children = async () =>
    (await run('ps', ['-Ao', 'ppid=,args='])).stdout.split('\n').filter((line) => line.trim().startsWith(`${started.pid} `));
  await eventually('it is alone', async () => (await children()).length === 0);
  started.kill('SIGKILL');
  await ended;
  await scratch.remove();
});

describe('the greeting', () => {
  const ports = { httpPort: 8080, wirePort: 6432 };
  const pasted = (text: string) => text.split('\n').filter((line) => /^ {2}(?:curl|export|npx|PGPASSWORD)/.test(line));

  it.each(['open', 'invite', 'closed'])(
    'has lines that a shell understands, how to get an organization where sign-up is %s',
    async (mode) => {
      const lines = pasted(banner(readConfig({ POSTERN_SIGNUP: mode }), ports, { isNew: true }));
      expect(lines).toHaveLength(4);
      expect(lines[0]).toMatch(/signup|admin invite|admin org create/);
      expect(await run('bash', ['-n', '-c', lines.join('\n')])).toEqual({ stdout: '', stderr: '' });
      expect(lines.join('')).not.toMatch(/[<>]/);
    },
  );

  it('leaves sign-up out when there are organizations', () => {
    const text = banner(readConfig({}), ports, { isNew: false });
    expect(pasted(text)).toHaveLength(3);
    expect(text).not.toContain('signup');
  });
});
