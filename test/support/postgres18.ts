import { join } from 'node:path';
import { startEmbedded } from '../../src/embedded/embedded.ts';
import { FORGETFUL, type TestCluster } from './cluster.setup.ts';
import { makeScratch } from './scratch.ts';

/** An embedded PostgreSQL for a test that cannot share the run's: on an untouched server, or one that is stopped and started. */
export async function startPostgres18(more: Readonly<Record<string, string>> = {}): Promise<TestCluster & { stop(): Promise<void> }> {
  const scratch = await makeScratch();
  const settings = { ...FORGETFUL, ...more };
  const { host, port, superuser, stop } = await startEmbedded({ dataDir: join(scratch.path, 'data'), settings });
  return {
    host,
    port,
    ...superuser,
    database: 'postgres',
    stop: async () => {
      await stop();
      await scratch.remove();
    },
  };
}
