import { describe, expect, inject, test } from 'vitest';
import {
  examine,
  findingsTable,
  readServerState,
  readSurroundings,
  type ServerState,
  type Surroundings,
} from '../../../src/admin/doctor.ts';
import { readConfig } from '../../../src/config.ts';
import { Platform } from '../../../src/placement/cluster.ts';
import { prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { concernAboutReleases } from '../../../src/placement/server-release.ts';
import { newControlDatabase } from '../../support/control-databases.ts';
import { makeScratch } from '../../support/scratch.ts';
import { TEST_SECRET } from '../../support/service.ts';

const HOUR_MS = 3_600_000;
const NOW = new Date('2026-11-27T00:00:00Z');

const CURRENT: ServerState = {
  ...{ version: 180_007, local: '07:00', collations: [] },
  ...{ isSuperuser: true, mayCreate: true, isHardened: true, mayPrepareTransactions: false },
  ...{ connectionsMax: 97, clockAheadMs: 3, clockWithinMs: 1 },
};

const AROUND: Surroundings = {
  node: '24.4.0',
  now: NOW,
  openFiles: undefined,
  disks: new Map(),
  backups: undefined,
  certificate: undefined,
  publicHost: undefined,
};

const server = (state: Partial<ServerState> = {}, name = 'default') => ({ name, read: async () => ({ ...CURRENT, ...state }) });

interface Case {
  readonly state?: Partial<ServerState>;
  readonly around?: Partial<Surroundings>;
  readonly settings?: Readonly<Record<string, string>>;
}

async function findingsOf({ state, around, settings = {} }: Case) {
  return examine([server(state)], { ...AROUND, ...around }, readConfig(settings));
}

const TLS = { POSTERN_TLS_CERT: '/cert.pem', POSTERN_TLS_KEY: '/key.pem' };
const at = (hours: number) => new Date(NOW.getTime() + hours * HOUR_MS);
const backup = (hours: number, verified: number | undefined) => ({
  time: at(-hours).toISOString(),
  verified: verified === undefined ? null : at(-verified).toISOString(),
});
const disk = (freeBytes: number) => new Map([['the data directory', { freeBytes, sizeBytes: 1_000 }]]);
const WITH_BACKUPS = { POSTERN_BACKUP_DIR: '/backups' };

/** What is as it should be, and what is not, by what is looked at. */
const CASES: Readonly<
  Record<string, { readonly fine: readonly [Case, RegExp]; readonly attention: readonly (readonly [Case, RegExp])[] }>
> = {
  Node: {
    fine: [{}, /^Node is 24\.4\.0$/],
    attention: [[{ around: { node: '20.19.1' } }, /^Node 20 gets no security fixes any more/]],
  },
  release: {
    fine: [{}, /^the PostgreSQL server of the cluster default is 18\.7: no fixes that it lacks are known$/],
    attention: [[{ state: { version: 180_004 } }, /^the PostgreSQL server of the cluster default is 18\.4, /]],
  },
  rights: {
    fine: [{ state: { isSuperuser: false } }, /has the rights that it needs$/],
    attention: [
      [{ state: { mayCreate: false } }, /has lost CREATEDB or CREATEROLE/],
      [{ state: { isHardened: false, isSuperuser: false } }, /^its catalogs are not closed/],
    ],
  },
  max_connections: {
    fine: [{}, /allows 97 sessions \(max_connections\): enough for 81 backends$/],
    attention: [
      [{ settings: { POSTERN_BACKENDS_MAX: '90' } }, /90 backends and 16 sessions of the service's own need 106/],
      [{ settings: { POSTERN_WORKERS: '6' } }, /4 backends and 96 sessions of the service's own need 100/],
    ],
  },
  max_prepared_transactions: {
    fine: [{}, /^the clock of/],
    attention: [[{ state: { mayPrepareTransactions: true } }, /set max_prepared_transactions = 0$/]],
  },
  clock: {
    fine: [{ state: { clockAheadMs: -9_000, clockWithinMs: 5_000 } }, /^the clock of .* is that of this machine$/],
    attention: [
      [{ state: { clockAheadMs: 60_000 } }, /^the clock of .* is 60\.0 s ahead of this machine's/],
      [{ state: { clockAheadMs: -7_000 } }, /^the clock of .* is 7\.0 s behind this machine's/],
    ],
  },
  'open files': {
    fine: [{ around: { openFiles: 65_536 } }, /^a process may have 65536 files open: enough for the settings$/],
    attention: [[{ around: { openFiles: 1_024 } }, /^the limit of open files \(ulimit -n\) is 1024, the settings need \d+: /]],
  },
  certificate: {
    fine: [{ settings: TLS, around: { certificate: at(24 * 60) } }, /is valid until 2027-01-26T00:00:00\.000Z$/],
    attention: [
      [{ settings: TLS, around: { certificate: at(24 * 13) } }, /is valid until 2026-12-10T00:00:00\.000Z: renew it$/],
      [{ settings: TLS, around: { certificate: at(-1) } }, /expired at 2026-11-26T23:00:00\.000Z$/],
      [{ settings: TLS, around: { certificate: new Error('ENOENT') } }, /cannot be read: ENOENT$/],
    ],
  },
  disk: {
    fine: [{ around: { disks: disk(500) } }, /^50 % of the disk of the data directory are free$/],
    attention: [[{ around: { disks: disk(99) } }, /^9 % of the disk of the data directory are free: make room$/]],
  },
  backups: {
    fine: [
      { settings: WITH_BACKUPS, around: { backups: [backup(20, 19), backup(5, undefined)] } },
      /^a backup was restored for a trial at /,
    ],
    attention: [
      [{ around: { backups: [] } }, /^there are no backups of the embedded server/],
      [{ settings: WITH_BACKUPS, around: { backups: [] } }, /^there is no base backup in \/backups$/],
      [
        { settings: WITH_BACKUPS, around: { backups: [backup(49, 1)] } },
        /^the newest base backup is of 2026-11-24T23:00:00\.000Z: the log/,
      ],
      [{ settings: WITH_BACKUPS, around: { backups: [backup(1, undefined)] } }, /^no backup has been restored for a trial: /],
      [{ settings: WITH_BACKUPS, around: { backups: [backup(400, 337), backup(1, undefined)] } }, /^no backup .* since 2026-11-12T23/],
      [{ settings: WITH_BACKUPS, around: { backups: new Error('EIO') } }, /^the backups cannot be looked at: EIO$/],
    ],
  },
  'public host': {
    fine: [
      { settings: { POSTERN_PUBLIC_HOST: 'db.example' }, around: { publicHost: 'found' } },
      /^replies tell clients to connect to db\.example$/,
    ],
    attention: [
      [
        { settings: { POSTERN_PUBLIC_HOST: 'db.example' }, around: { publicHost: new Error('ENOTFOUND') } },
        /which is not found: ENOTFOUND/,
      ],
      [{ settings: { POSTERN_HOST: '0.0.0.0', ...TLS } }, /: set POSTERN_PUBLIC_HOST$/],
    ],
  },
  'keys in clear text': {
    fine: [{ settings: { POSTERN_HOST: '192.0.2.1', POSTERN_TLS: 'require', ...TLS } }, /^both doors speak TLS on 192\.0\.2\.1$/],
    attention: [
      [{ settings: { POSTERN_HOST: '192.0.2.1' } }, /^keys and data cross the network in clear text on 192\.0\.2\.1/],
      [{ settings: { POSTERN_HOST: 'db.example', ...TLS } }, /^the wire door on db\.example takes connections without TLS/],
    ],
  },
};

describe('the doctor', () => {
  test.each(Object.entries(CASES))('looks at: %s', async (_name, { fine, attention }) => {
    expect(await findingsOf(fine[0])).toContainEqual({ needsAttention: false, text: expect.stringMatching(fine[1]) });
    expect((await findingsOf({})).filter(({ needsAttention }) => needsAttention)).toEqual([]);
    for (const [given, text] of attention)
      expect(await findingsOf(given)).toContainEqual({ needsAttention: true, text: expect.stringMatching(text) });
  });

  test('finds a proxy in front of the doors enough', async () => {
    const settings = { POSTERN_HOST: '192.0.2.1', POSTERN_TRUST_PROXY: '192.0.2.0/24', POSTERN_PUBLIC_HOST: 'db.example' };
    const findings = await findingsOf({ settings, around: { publicHost: 'found' } });
    expect(findings.filter(({ needsAttention }) => needsAttention)).toEqual([]);
  });

  test('looks at every server, and at itself', async () => {
    const down = { name: 'us1', read: () => Promise.reject(new Error('connect ECONNREFUSED')) };
    const now = new Date('2027-05-01T00:00:00Z');
    const servers = [server(), server({ version: 180_004 }, 'eu2'), down];
    const lines = findingsTable(await examine(servers, { ...AROUND, now }, readConfig({}))).split('\n');
    expect(lines.filter((line) => line.startsWith('ATTENTION  ')).map((line) => line.slice(11))).toEqual([
      expect.stringMatching(/^the PostgreSQL server of the cluster eu2 is 18\.4, /),
      'the PostgreSQL server of the cluster us1 does not answer: connect ECONNREFUSED',
      concernAboutReleases(now),
    ]);
    expect(lines[0]).toBe('ok         Node is 24.4.0');
  });

  test('reads the state of a server, and what is around the service', async () => {
    const [scratch, config] = [
      await makeScratch(),
      readConfig({ POSTERN_PUBLIC_HOST: 'localhost', POSTERN_TLS_CERT: '/nowhere', POSTERN_TLS_KEY: '/nowhere' }),
    ];
    const cluster = await prepareCluster({
      admin: inject('clusterUrl'),
      secret: TEST_SECRET,
      controlDatabase: newControlDatabase(),
      observe() {},
    });
    const platform = new Platform(cluster);
    try {
      const state = await readServerState(platform);
      expect(state).toMatchObject({ isSuperuser: true, mayCreate: true, isHardened: true, mayPrepareTransactions: false });
      expect(state.connectionsMax).toBe(cluster.maxConnections);
      // Both are of the same machine.
      expect(Math.abs(state.clockAheadMs)).toBeLessThanOrEqual(state.clockWithinMs + 5);
      const around = await readSurroundings(config, scratch.path);
      expect(around).toMatchObject({ node: process.versions.node, publicHost: 'found', backups: [], certificate: expect.any(Error) });
      expect(around.disks.get('the data directory')?.sizeBytes).toBeGreaterThan(0);
    } finally {
      await platform.close();
      await scratch.remove();
    }
  });
});
