import { defineConfig } from 'vitest/config';

/** What a client sees at the doors, which is the same wherever its organization lives. */
const AT_THE_DOORS = [
  'http/{advice,audit,examples,idempotency,keys,lines,migrations,neon,query,query-statistics,schema,usage,websocket,wire-sockets}.test.ts',
  'proxy/{backend-loss,cancel,dangling-portal,drivers,oversized-statements,portions,sequences}.test.ts',
  'service/{all-or-nothing,both-doors,errors,exactly-once,rotation,sessions,shared-backend}.test.ts',
];

/** Clients that work in one schema; src/router/README.md says what does not work for the others. */
const CLIENTS_OF_ONE_SCHEMA = ['knex', 'kysely', 'neon', 'pg', 'pg-dump', 'postgres', 'psql', 'python'].map(
  (name) => `clients/${name}.test.ts`,
);

export default defineConfig({
  cacheDir: '../node_modules/.vite',
  test: {
    root: new URL('.', import.meta.url).pathname,
    setupFiles: ['support/files.setup.ts'],
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
          include: ['src/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
          // The files of a worker share its modules: to load them for each of eighty files takes longer than most of the tests.
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: 'fast',
          include: ['{proxy,http,service,attacks,bench,house}/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: 'schema',
          include: AT_THE_DOORS,
          env: { TEST_PLACEMENT: 'schema' },
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: 'clients',
          include: ['clients/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: 'clients-schema',
          include: CLIENTS_OF_ONE_SCHEMA,
          env: { TEST_PLACEMENT: 'schema' },
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: 'citus',
          include: ['citus/**/*.test.ts'],
          // They share the servers.
          fileParallelism: false,
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          include: ['browser/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
          isolate: false,
        },
      },
    ],
  },
});
