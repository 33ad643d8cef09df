import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { readDocument } from '../support/documents.ts';

const FILE = readDocument('docker/compose.yaml');

/** The lines of each service, by name. */
const SERVICES = new Map(
  [...((FILE.split(/^services:\n/m)[1] ?? '').split(/^\S/m)[0]?.matchAll(/^ {2}(\w+):\n((?: {4}.*\n|\n)*)/gm) ?? [])].map(
    ([, name = '', lines = '']) => [name, lines],
  ),
);

describe('the compose file', () => {
  it('publishes nothing but on the loopback address', () => {
    expect([...SERVICES.keys()]).toEqual(['postgres', 'postern']);
    expect(SERVICES.get('postgres')).not.toContain('ports:');
    const published = [...(SERVICES.get('postern') ?? '').matchAll(/- "?((?:[\d.]+:)?\d+:\d+)"?$/gm)].map(([, port]) => port);
    expect(published).toEqual(['127.0.0.1:8080:8080', '127.0.0.1:6432:6432']);
  });

  it.each(['postgres', 'postern'])('lets %s write where it has to, do what it has to, and take so much', (name) => {
    const service = SERVICES.get(name);
    for (const line of ['read_only: true', 'cap_drop: [ALL]', 'security_opt: ["no-new-privileges:true"]']) {
      expect(service).toContain(`    ${line}\n`);
    }
    for (const limit of [/^ {4}mem_limit: \S/m, /^ {4}pids_limit: \d+$/m, /^ {6}nofile: \d+$/m]) expect(service).toMatch(limit);
  });
});

describe('the compose file of several servers', () => {
  const file = readDocument('docker/compose.scale.yaml');
  /** From this line to the next empty one. */
  const block = (line: string) => file.slice(file.indexOf(line)).split('\n\n')[0];

  it('publishes the balancer alone, on the loopback address', () => {
    const published = [...file.matchAll(/- "?((?:[\d.]+:)?\d+:\d+)"?$/gm)].map(([, port]) => port);
    expect(published).toEqual(['127.0.0.1:8080:8080', '127.0.0.1:6432:6432']);
    expect(block('  haproxy:')).toContain('127.0.0.1:8080:8080');
  });

  it.each(['x-postgres:', 'x-postern:', '  haproxy:'])('limits %s as the other compose file does', (line) => {
    for (const limit of ['read_only: true', 'cap_drop: [ALL]', 'security_opt: ["no-new-privileges:true"]', 'mem_limit: ', 'pids_limit: ']) {
      expect(block(line)).toContain(limit);
    }
  });

  it('lets both Posterns open fewer backends than each server allows', () => {
    const [, backends] = /POSTERN_BACKENDS_MAX: (\d+)/.exec(file) ?? [];
    const [, connections] = /max_connections=(\d+)/.exec(file) ?? [];
    expect(2 * (Number(backends) + 16)).toBeLessThanOrEqual(Number(connections));
  });
});

describe('the settings in the compose files', () => {
  /** The settings of the service, with the defaults of what the caller's environment sets. */
  const settingsIn = (file: string): Record<string, string> =>
    Object.fromEntries(
      [...readDocument(`docker/${file}`).matchAll(/^ +(POSTERN_[A-Z_]+|DATABASE_URL): (.+)$/gm)].map(([, name = '', value = '']) => [
        name,
        value.replace(/\$\{\w+:-([^}]*)\}/g, '$1').replace(/\$\{(\w+)(?::\?[^}]*)?\}/g, 'the value of $1'),
      ]),
    );

  it.each(['compose.yaml', 'compose.scale.yaml', 'compose.tls.yaml'])('are settings that there are, in %s', (file) => {
    const known = new Set(Object.keys(readConfig({})));
    const names = Object.keys(settingsIn(file)).filter((name) => name.startsWith('POSTERN_'));
    expect(names.length).toBeGreaterThan(0);
    // What has no default is not in the configuration unless it is set; the table has all.
    const table = readDocument('docker/README.md');
    for (const name of names) expect(known.has(name) || table.includes(`| \`${name}\` |`), name).toBe(true);
  });

  it.each(['compose.yaml', 'compose.scale.yaml'])('are valid in %s', (file) => {
    const { DATABASE_URL, ...settings } = settingsIn(file);
    expect(DATABASE_URL).toMatch(/^postgres:/);
    const config = readConfig({ ...settings, DATABASE_URL: 'postgres://postgres@postgres/postgres' });
    expect(config).toMatchObject({ POSTERN_PUBLIC_HOST: 'localhost' });
  });

  it('trust the proxies of the network that they are in, and announce a stop for longer than HAProxy takes to notice', () => {
    const text = readDocument('docker/compose.scale.yaml');
    const { POSTERN_TRUST_PROXY: trusted, POSTERN_DRAIN_MS: drainMs } = settingsIn('compose.scale.yaml');
    expect(text).toContain(`- subnet: ${trusted}\n`);
    const [, seconds, times] = /inter (\d+)s rise \d+ fall (\d+)/.exec(readDocument('docker/haproxy.cfg')) ?? [];
    expect(Number(drainMs)).toBeGreaterThan(1_000 * Number(seconds) * Number(times));
  });

  it.each(['compose.yaml', 'compose.scale.yaml'])('give PostgreSQL and Postern more time than a stop waits, in %s', (file) => {
    const { POSTERN_DRAIN_MS: drainMs = 0 } = settingsIn(file);
    const graces = [...readDocument(`docker/${file}`).matchAll(/^ +stop_grace_period: (\d+)s$/gm)].map(
      ([, seconds]) => 1_000 * Number(seconds),
    );
    expect(graces).toHaveLength(2);
    for (const graceMs of graces) expect(graceMs).toBeGreaterThan(Number(drainMs) + readConfig({}).POSTERN_SHUTDOWN_TIMEOUT_MS);
  });

  it('name each Postern to HAProxy at the ports of its doors', () => {
    const servers = [...readDocument('docker/haproxy.cfg').matchAll(/^ +server (\S+) (\S+)$/gm)].map(([, name, address]) => [
      name,
      address,
    ]);
    const posterns = [...readDocument('docker/compose.scale.yaml').matchAll(/^ {2}(postern-\d+):\n {4}<<: \*postern$/gm)].map(
      ([, name]) => name,
    );
    const { POSTERN_PG_PORT, POSTERN_HTTP_PORT, POSTERN_OPS_PORT } = readConfig({});
    expect(servers).toEqual([POSTERN_PG_PORT, POSTERN_HTTP_PORT].flatMap((port) => posterns.map((name) => [name, `${name}:${port}`])));
    expect(readDocument('docker/haproxy.cfg')).toContain(`check port ${POSTERN_OPS_PORT} `);
  });
});

describe('the images', () => {
  const stages = new Map(
    [...readDocument('docker/Dockerfile').matchAll(/^FROM (\S+)(?: AS (\S+))?\n((?:(?!FROM ).*\n)*)/gm)].map(
      ([, from, name, text = '']) => [name ?? 'last', { from, text }],
    ),
  );

  it('hold what the package holds', () => {
    const { files }: { files: string[] } = JSON.parse(readDocument('package.json'));
    // /docs shows no pictures, and the unit is for machines without containers.
    const held = files.filter((file) => !['docker/postern.service', 'http/console/console.png'].includes(file));
    for (const file of [...held, 'package.json', 'README.md']) expect(stages.get('service')?.text).toContain(file);
  });

  it('have a PostgreSQL in one of three, which is not the one that is built unless asked for', () => {
    expect(stages.get('last')).toEqual({ from: 'service', text: '' });
    const { from, text = '' } = stages.get('all-in-one') ?? {};
    expect(from).toBe('postgres:18');
    const [, programs] = / POSTERN_POSTGRES_BIN=(\S+)$/m.exec(text) ?? [];
    expect(programs).toBe('/usr/lib/postgresql/18/bin');
    // What the image of PostgreSQL would do instead.
    expect(text).toMatch(/^STOPSIGNAL SIGTERM\nENTRYPOINT \[\]\n/m);
  });

  it('run the same in the same way, with a PostgreSQL and without', () => {
    const { text: service = '' } = stages.get('service') ?? {};
    const { text: whole = '' } = stages.get('all-in-one') ?? {};
    for (const instruction of [
      /^HEALTHCHECK .*\n.*$/m,
      /^CMD .*$/m,
      /^EXPOSE .*$/m,
      /^USER .*$/m,
      /^ENV NODE_ENV=.* POSTERN_DATA_DIR=\S+/m,
    ]) {
      expect(instruction.exec(whole)?.[0]).toBe(instruction.exec(service)?.[0]);
    }
  });
});

it('the systemd unit gives no privileges, and lets Postern stop its PostgreSQL', () => {
  const lines = readDocument('docker/postern.service').split('\n');
  const hardened = [
    'CapabilityBoundingSet=',
    'NoNewPrivileges=yes',
    'ProtectSystem=strict',
    'ProtectHome=yes',
    'SystemCallFilter=@system-service',
  ];
  expect(lines).toEqual(expect.arrayContaining([...hardened, 'User=postern', 'KillMode=mixed', 'StateDirectory=postern']));
});
