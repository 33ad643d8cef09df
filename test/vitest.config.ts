import { defineConfig } from 'vitest/config';

export default defineConfig({
  cacheDir: '../node_modules/.vite',
  test: {
    root: new URL('.', import.meta.url).pathname,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'fast',
          include: ['{src,proxy,http,service,attacks}/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: 'clients',
          include: ['clients/**/*.test.ts'],
          globalSetup: ['support/cluster.setup.ts'],
          maxWorkers: 1,
          testTimeout: 120_000,
        },
      },
    ],
  },
});
