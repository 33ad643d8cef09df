import { existsSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

/** What a client sees at the doors, which is the same wherever its organization lives. */
const AT_THE_DOORS = [
  'http/{examples,keys,lines,migrations,neon,query,schema}.test.ts',
  'proxy/{cancel,conversations,dangling-portal,drivers,portions}.test.ts',
  'service/{all-or-nothing,both-doors,errors,shared-backend}.test.ts',
];

/** Of these, what takes long in one placement already, or hardly asks where an organization lives. */
const AT_THE_DOORS_LONG = [
  'http/{advice,audit,idempotency,query-statistics,usage,websocket,wire-sockets}.test.ts',
  'proxy/{backend-loss,oversized-statements,sequences}.test.ts',
  'service/{exactly-once,rotation,sessions}.test.ts',
];

/** Long by nature: attacks by the hundred, floods, fuzzing, memory, processes and servers that die, moves. `npm run test:full` runs them. */
const LONG = [
  'attacks/{floods,hostile-objects,locks,logins,memory,restored-databases,stalls,stuck-backends,time}.test.ts',
  'http/{audit-verification,body-memory,fast-path-{keep-alive,smuggling},limits,shared-queries-stress}.test.ts',
  'proxy/{backend-loss,buffer-budget,differential,fuzzer,hostile-clients,large-values,many-clients,settings}.test.ts',
  'proxy/{oversized-statements,shared-pipeline-stress,statement-memory,stress}.test.ts',
  'service/{admin,backups,both-doors-stress,cancel-elsewhere,clones,cluster-failures,cluster-workers,clusters,command,crash,descriptors,dev,disk-space}.test.ts',
  'service/{disk-quota-attacks,disobedience,draining,exactly-once,failover,full-server,large-results,lockouts,lost-answers,package,pauses}.test.ts',
  'service/{postgres-outage,process,reused-statements,rolling-restart,session-limits,shared-failures}.test.ts',
  'service/{operator-workers,past,proxied-workers,worker-connections,worker-limits,workers}.test.ts',
  'src/{backups,embedded,patterns}.test.ts',
  'src/placement/{citus,cluster-setup,disk-quota}.test.ts',
];

/** Each of these runs the same on several servers: `npm test` on one of them, `npm run test:full` on the others, by support/parts.ts. */
const IN_PARTS = [
  'proxy/conversations.test.ts',
  'service/disk-quota.test.ts',
  'src/placement/{database,schema}.test.ts',
  ...(existsSync('/usr/lib/postgresql/15/bin/postgres') ? ['src/rewriting/postgres.test.ts'] : []),
];

/** Clients that work in one schema; src/router/README.md says what does not work for the others. */
const CLIENTS_OF_ONE_SCHEMA = ['knex', 'kysely', 'neon', 'pg', 'pg-dump', 'postgres', 'psql', 'python'].map(
  (name) => `clients/${name}.test.ts`,
);

/**
 * The files of a worker share its modules: to load them for each of two hundred files takes longer than most of the tests.
 * More workers than the two processors that the suite is made for: tests wait most of the time, for deadlines and for PostgreSQL.
 */
const SHARED_MODULES = { isolate: false, maxWorkers: 5 } as const;

/** After those, where both are run; vitest wants to be told. */
const LONGER = { maxWorkers: 3, sequence: { groupOrder: 1 } } as const;

export default defineConfig({
  cacheDir: '../node_modules/.vite',
  test: {
    root: new URL('.', import.meta.url).pathname,
    setupFiles: ['support/files.setup.ts'],
    // To transform the sources anew for each run takes longer than most tests.
    experimental: { fsModuleCache: true },
    // These end what would never end. None of them is a measure of speed: a busy machine may take ten times as long as an idle one.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // As long as eventually() waits.
    expect: { poll: { timeout: 120_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'units',
          globalSetup: ['support/cluster.setup.ts'],
          include: ['src/**/*.test.ts'],
          exclude: LONG,
          ...SHARED_MODULES,
        },
      },
      {
        extends: true,
        test: {
          name: 'fast',
          globalSetup: ['support/cluster.setup.ts'],
          include: ['{proxy,http,service,attacks,bench,house}/**/*.test.ts'],
          exclude: LONG,
          ...SHARED_MODULES,
        },
      },
      {
        extends: true,
        test: {
          name: 'schema',
          globalSetup: ['support/cluster.setup.ts'],
          include: AT_THE_DOORS,
          env: { TEST_PLACEMENT: 'schema' },
          ...SHARED_MODULES,
        },
      },
      {
        extends: true,
        test: {
          name: 'full',
          globalSetup: ['support/cluster.setup.ts'],
          include: [...LONG, ...IN_PARTS],
          env: { TEST_PART: 'full' },
          ...LONGER,
        },
      },
      {
        extends: true,
        test: {
          name: 'full-schema',
          globalSetup: ['support/cluster.setup.ts'],
          include: AT_THE_DOORS_LONG,
          env: { TEST_PLACEMENT: 'schema', TEST_PART: 'full' },
          ...LONGER,
        },
      },
      {
        extends: true,
        test: {
          name: 'clients',
          globalSetup: ['support/cluster.setup.ts'],
          include: ['clients/**/*.test.ts'],
          ...LONGER,
        },
      },
      {
        extends: true,
        test: {
          name: 'clients-schema',
          globalSetup: ['support/cluster.setup.ts'],
          include: CLIENTS_OF_ONE_SCHEMA,
          env: { TEST_PLACEMENT: 'schema' },
          ...LONGER,
        },
      },
      {
        extends: true,
        test: {
          name: 'runtimes',
          include: ['runtimes/**/*.test.ts'],
          ...LONGER,
        },
      },
      {
        extends: true,
        test: {
          name: 'applications',
          include: ['applications/**/*.test.ts'],
          // Two starts of an application that takes minutes.
          testTimeout: 1_800_000,
          hookTimeout: 900_000,
          // The processors are for one application and its Postern.
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: 'operate',
          include: ['operate/**/*.test.ts'],
          // The processors are for the servers of one.
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: 'citus',
          include: ['citus/**/*.test.ts'],
          // They share the servers.
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          globalSetup: ['support/cluster.setup.ts'],
          include: ['browser/**/*.test.ts'],
          setupFiles: ['support/files.setup.ts', 'browser/support/page.setup.ts'],
          ...LONGER,
          isolate: false,
        },
      },
    ],
  },
});
