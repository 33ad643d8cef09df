import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';

const BIN = new URL('../../src/bin.cjs', import.meta.url).pathname;

describe('postern dev', () => {
  let installation: Installation;
  // It finds ports by itself.
  const variables = { POSTERN_HTTP_PORT: '', POSTERN_PG_PORT: '', POSTERN_OPS_PORT: '', POSTERN_SIGNUP: 'closed' };
  let path: string;
  beforeAll(async () => {
    installation = await makeInstallation({ command: [process.execPath, BIN, 'dev'] });
    path = join(dirname(installation.dataDir), '.env.postern');
  });
  afterAll(() => installation.remove());

  const printed = (postern: PosternProcess) => /^DATABASE_URL=(.+)$/m.exec(postern.output())?.[1] ?? '';
  const start = async (more: Readonly<Record<string, string>> = {}) => {
    const postern = await installation.start({ ...variables, ...more });
    await eventually('it prints the address', async () => printed(postern) !== '');
    return postern;
  };
  const kept = async () => {
    const lines = (await readFile(path, 'utf8')).matchAll(/^(\w+)=(.*)$/gm);
    return new Map([...lines].map(([, name = '', value = '']) => [name, value]));
  };
  const ask = async (url: string): Promise<unknown> => {
    const client = new pg.Client(url);
    await client.connect();
    const { rows } = await client.query('SELECT current_user AS name');
    await client.end();
    return rows[0]?.name;
  };

  it('makes an organization, prints its address, and keeps it in a file for its owner only', async () => {
    const postern = await start();
    const [url = '', id = '', key = '', api] = (await kept()).values();
    expect([...(await kept()).keys()]).toEqual(['DATABASE_URL', 'ORG', 'API_KEY', 'API_URL']);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await ask(url)).toBe(id);
    expect(api).toBe(postern.httpUrl);
    expect((await postern.call('GET', '/api/auth/me', { key })).body).toMatchObject({ id, orgName: 'dev' });
    expect(printed(postern)).toBe(url);
    expect(await readFile(join(installation.dataDir, '.gitignore'), 'utf8')).toBe('*\n');
    expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
  });

  it('prints an address of the console that signs in once', async () => {
    const postern = await start();
    const [, , key = ''] = (await kept()).values();
    const [, page, token] = /^ {2}(http:\S+)#\/sign-in\/([\w-]{43})$/m.exec(postern.output()) ?? [];
    expect(page).toBe(`${postern.httpUrl}/console`);
    const signIn = () => postern.call('POST', '/api/auth/console', { body: { token, name: 'console, Firefox' } });
    const [first, second] = [await signIn(), await signIn()];
    expect([first.status, second.status]).toEqual([201, 401]);
    expect((await postern.call('GET', '/api/keys', { key })).body.keys.map(({ name }: { name: string }) => name)).toEqual([
      'first key',
      'console, Firefox',
    ]);
    const { stdout } = await postern.end('SIGTERM');
    expect(stdout.split(String(token))).toHaveLength(2);
  });

  it('has the same organization, key and ports the next time, also in a shell that has read the file', async () => {
    const before = await kept();
    const [url = '', id] = before.values();
    const postern = await start({ DATABASE_URL: url, POSTERN_SIGNUP: '', POSTERN_SIGNUPS_PER_HOUR: '' });
    expect(await ask(url)).toBe(id);
    expect(printed(postern)).toBe(url);
    // More than strangers may in an hour.
    for (let n = 0; n < 6; n += 1) await postern.signUp();
    expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
    expect(await kept()).toEqual(before);
  });

  it('leaves a file alone that it has not written', async () => {
    const [, id, key] = (await kept()).values();
    await writeFile(path, 'MINE=1\n');
    await chmod(path, 0o644);
    const postern = await start();
    const url = printed(postern);
    await postern.end('SIGTERM');
    expect(url).toContain(`postgres://${id}:pst_`);
    expect(url).not.toContain(key);
    expect(await readFile(path, 'utf8')).toBe('MINE=1\n');
  });
});
