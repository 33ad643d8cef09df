import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/embedded/embedded.ts';
import { makeScratch } from './scratch.ts';
import { serverUrl } from './server-url.ts';

/** How to log in to a test cluster as its superuser. `host` is the folder of a Unix socket. */
export interface TestCluster {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

declare module 'vitest' {
  export interface ProvidedContext {
    /** As a URL that `pg` and DATABASE_URL take. */
    readonly clusterUrl: string;
    /** In parts, for `postgres`, which knows no socket folder in a URL. */
    readonly cluster: TestCluster;
  }
}

/** Nothing in a test cluster needs to survive. */
export const FORGETFUL = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };

/** One PostgreSQL for the whole run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scratch = await makeScratch();
  const running = await startEmbedded({ dataDir: join(scratch.path, 'data'), settings: { ...FORGETFUL, log_min_messages: 'warning' } });
  const { host, port, superuser } = running;
  project.provide('cluster', { host, port, ...superuser, database: 'postgres' });
  project.provide('clusterUrl', serverUrl({ host, port, ...superuser }));
  return async () => {
    await running.stop();
    await scratch.remove();
  };
}
