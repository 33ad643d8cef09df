import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError, isChangeable, parseSetting, RunningConfig, readConfig, SETTING_NAMES, unknownVariables } from '../../src/config.ts';
import { readDocument } from '../support/documents.ts';
import { makeScratch } from '../support/scratch.ts';

describe('the configuration', () => {
  it('needs nothing to be set', () => {
    expect(readConfig({})).toMatchObject({
      POSTERN_HOST: '127.0.0.1',
      POSTERN_HTTP_PORT: 8080,
      POSTERN_PG_PORT: 6432,
      POSTERN_OPS_PORT: 9464,
      POSTERN_PLACEMENT: 'database',
      POSTERN_TLS: 'prefer',
      POSTERN_SIGNUPS_PER_HOUR: 5,
      POSTERN_STATEMENT_TIMEOUT_MS: 30_000,
    });
  });

  it('takes an empty value for none', () => {
    expect(readConfig({ POSTERN_HTTP_PORT: '', POSTERN_TRUST_PROXY: '', DATABASE_URL: '' })).toEqual(readConfig({}));
  });

  it('does not look at anything else in the environment', () => {
    expect(readConfig({ PATH: '/bin', POSTERN: 'x' })).toEqual(readConfig({}));
  });

  it('knows what looks like a setting and is none', () => {
    const environment = {
      POSTERN_HTTP_PROT: '80',
      POSTERN_HTTP_PORT: '80',
      DATABASE_URL: '',
      POSTERN_NOTHING: '',
      POSTERN_SECRET_FILE: '/run/secrets/postern',
      POSTERN_WHATEVER_THIS_IS: '1',
      POSTERN: 'x',
      PATH: '/bin',
    };
    expect(unknownVariables(environment)).toEqual(['POSTERN_HTTP_PROT (did you mean POSTERN_HTTP_PORT?)', 'POSTERN_WHATEVER_THIS_IS']);
  });

  it('changes in part while the service runs, for who reads it then', () => {
    const initial = readConfig({ POSTERN_QUEUE_TIMEOUT_MS: '20', POSTERN_WORKERS: '2' });
    const settings = new RunningConfig(initial);
    const { config } = settings;
    settings.change('POSTERN_QUEUE_TIMEOUT_MS', '30');
    settings.change('POSTERN_SIGNUP', 'closed');
    expect([config.POSTERN_QUEUE_TIMEOUT_MS, config.POSTERN_SIGNUP, config.POSTERN_WORKERS]).toEqual([30, 'closed', 2]);
    expect([settings.initial.POSTERN_QUEUE_TIMEOUT_MS, initial.POSTERN_SIGNUP]).toEqual([20, 'open']);
    expect(() => settings.change('POSTERN_QUEUE_TIMEOUT_MS', '0')).toThrow('must be a whole number from 1 to 2147483647');
    expect(config.POSTERN_QUEUE_TIMEOUT_MS).toBe(30);
    expect(() => parseSetting('POSTERN_SIGNUP', '')).toThrow('must be one of open, invite, closed');
  });

  it('takes what PostgreSQL takes for a boolean', () => {
    const told = (text: string) => readConfig({ POSTERN_CONSOLE: text }).POSTERN_CONSOLE;
    expect(['on', 'true', 'YES', '1', 'off', 'False', 'no', '0'].map(told)).toEqual(['on', 'on', 'on', 'on', 'off', 'off', 'off', 'off']);
    expect(() => told('offf')).toThrow('POSTERN_CONSOLE: must be one of on, off (did you mean off?)');
    expect(() => told('perhaps')).toThrow(/must be one of on, off$/);
  });

  it('reads secrets from files', async () => {
    const { path, remove } = await makeScratch();
    const [url, secret, empty] = ['url', 'secret', 'empty'].map((name) => join(path, name)) as [string, string, string];
    await writeFile(url, 'postgres://postgres@db/postgres\n');
    await writeFile(secret, 'of sixteen letters\n');
    await writeFile(empty, '\n');
    const { DATABASE_URL, POSTERN_SECRET } = readConfig({ DATABASE_URL_FILE: url, POSTERN_SECRET_FILE: secret });
    expect([DATABASE_URL, POSTERN_SECRET]).toEqual(['postgres://postgres@db/postgres', 'of sixteen letters']);
    expect(() => readConfig({ POSTERN_SECRET_FILE: secret, POSTERN_SECRET: 'of sixteen letters' })).toThrow('is set beside POSTERN_SECRET');
    for (const file of [empty, join(path, 'absent')]) {
      expect(() => readConfig({ POSTERN_SECRET_FILE: file })).toThrow(`POSTERN_SECRET_FILE: ${file} is empty or cannot be read`);
    }
    await remove();
  });

  it('listens where a host for applications says, unless told otherwise', () => {
    expect(readConfig({ PORT: '5000' }).POSTERN_HTTP_PORT).toBe(5_000);
    expect(readConfig({ PORT: '5000', POSTERN_HTTP_PORT: '80' }).POSTERN_HTTP_PORT).toBe(80);
    expect(() => readConfig({ PORT: 'http' })).toThrow('PORT: must be a whole number from 0 to 65535');
  });

  it('has those in the documents that may change', () => {
    const [, section = ''] = readDocument('docker/README.md').split('### Settings that may change');
    const [table = ''] = section.split(/^PgBouncer/m);
    const documented = [...table.matchAll(/^\| (.*?) \|/gm)].flatMap(([, names = '']) => names.match(/POSTERN_\w+/g) ?? []);
    expect(documented.sort()).toEqual(SETTING_NAMES.filter(isChangeable).sort());
  });

  it('cannot be changed', () => {
    expect(Object.isFrozen(readConfig({}))).toBe(true);
  });

  it('reads lists of address ranges', () => {
    expect(readConfig({ POSTERN_TRUST_PROXY: '10.0.0.0/8, 2001:db8::/32,192.0.2.1' }).POSTERN_TRUST_PROXY).toEqual([
      '10.0.0.0/8',
      '2001:db8::/32',
      '192.0.2.1',
    ]);
  });

  it.each(['localhost', 'db-1.example.com.', 'postern_db', '0.0.0.0', '::', '2001:db8::1', 'fe80::1%eth0'])('takes the host %s', (host) => {
    expect(readConfig({ POSTERN_HOST: host, POSTERN_PUBLIC_HOST: host })).toMatchObject({ POSTERN_HOST: host, POSTERN_PUBLIC_HOST: host });
  });

  const secret = { POSTERN_SECRET: 'sixteen letters!' };
  it.each([
    [{ POSTERN_PG_PORT: 'abc' }, 'POSTERN_PG_PORT: must be a whole number from 0 to 65535'],
    [{ POSTERN_PG_PORT: '64 32' }, 'POSTERN_PG_PORT: must be a whole number from 0 to 65535'],
    [{ POSTERN_PG_PORT: '-1' }, 'POSTERN_PG_PORT: must be a whole number from 0 to 65535'],
    [{ POSTERN_PG_PORT: '1e3' }, 'POSTERN_PG_PORT: must be a whole number from 0 to 65535'],
    [{ POSTERN_HTTP_PORT: '65536' }, 'POSTERN_HTTP_PORT: must be a whole number from 0 to 65535'],
    [{ POSTERN_STATEMENT_TIMEOUT_MS: '30s' }, 'POSTERN_STATEMENT_TIMEOUT_MS: must be a whole number from 0 to 2147483647'],
    [{ POSTERN_BACKENDS_PER_TENANT: '0' }, 'POSTERN_BACKENDS_PER_TENANT: must be a whole number from 1 to 10000'],
    [{ POSTERN_LOGIN_TIMEOUT_MS: '0' }, 'POSTERN_LOGIN_TIMEOUT_MS: must be a whole number from 1 to 2147483647'],
    [{ POSTERN_QUEUE_TIMEOUT_MS: '0' }, 'POSTERN_QUEUE_TIMEOUT_MS: must be a whole number from 1 to 2147483647'],
    [{ POSTERN_WORKERS: '257' }, 'POSTERN_WORKERS: must be auto, or a whole number from 1 to 256'],
    [{ POSTERN_SECRET: 'short' }, 'POSTERN_SECRET: must have at least 16 characters'],
    [{ POSTERN_CONTROL_DATABASE: 'a"b' }, 'POSTERN_CONTROL_DATABASE: must be a plain lower-case name'],
    [{ POSTERN_TRUST_PROXY: '10.0.0.0/33' }, 'POSTERN_TRUST_PROXY: must be a comma-separated list of CIDR ranges'],
    [{ POSTERN_TRUST_PROXY: 'all' }, 'POSTERN_TRUST_PROXY: must be a comma-separated list of CIDR ranges'],
    [{ ...secret, DATABASE_URL: 'mysql://localhost/x' }, 'DATABASE_URL: must be a postgres:// URL'],
    [
      { DATABASE_URL: 'postgres://localhost/x' },
      'POSTERN_SECRET: is required with DATABASE_URL: set it to the output of `openssl rand -hex 32`, and keep it',
    ],
    [
      { ...secret, DATABASE_URL: 'postgres://localhost/x', POSTERN_BACKUP_DIR: '/backups' },
      'POSTERN_BACKUP_DIR: is for the embedded server: unset it, and back up the one in DATABASE_URL with its own tools',
    ],
    [
      { POSTERN_DATA_DIR: '/srv/data', POSTERN_BACKUP_DIR: '/srv/data/backups' },
      'POSTERN_BACKUP_DIR: must not be in POSTERN_DATA_DIR, with which it would be lost',
    ],
    [{ POSTERN_TLS_CERT: 'cert.pem' }, 'POSTERN_TLS_CERT: set it together with POSTERN_TLS_KEY, or neither'],
    [{ POSTERN_TLS_KEY: 'key.pem' }, 'POSTERN_TLS_CERT: set it together with POSTERN_TLS_KEY, or neither'],
    [{ POSTERN_TLS: 'require' }, 'POSTERN_TLS: require needs POSTERN_TLS_CERT and POSTERN_TLS_KEY'],
  ])('%j is refused in one line', (environment, message) => {
    expect(() => readConfig(environment)).toThrow(new ConfigError(message));
  });

  it.each(['http://db.example', 'db.example:6432', '[::1]', 'not a host'])('%s is no host', (host) => {
    const why = 'must be a host name or an IP address, without scheme, port or brackets';
    expect(() => readConfig({ POSTERN_HOST: host })).toThrow(new ConfigError(`POSTERN_HOST: ${why}`));
    expect(() => readConfig({ POSTERN_PUBLIC_HOST: host })).toThrow(new ConfigError(`POSTERN_PUBLIC_HOST: ${why}`));
  });

  it.each([
    ['POSTERN_PLACEMENT', 'database, schema'],
    ['POSTERN_TLS', 'off, prefer, require'],
    ['POSTERN_LOG_LEVEL', 'fatal, error, warn, info, debug, trace, silent'],
  ])('%s must be one of its words', (variable, words) => {
    expect(() => readConfig({ [variable]: 'sideways' })).toThrow(new ConfigError(`${variable}: must be one of ${words}`));
  });
});
