import { join } from 'node:path';
import { type EmbeddedCluster, startEmbedded } from '../../src/embedded/embedded.ts';
import { FORGETFUL, type TestCluster } from './cluster.setup.ts';
import { makeScratch } from './scratch.ts';
import { serverUrl } from './server-url.ts';

/** A PostgreSQL that a test may stop, start again at the same place, and do worse things to. */
export interface OwnCluster {
  /** The same for as long as the cluster lives. */
  readonly superuser: TestCluster;
  readonly url: string;
  stop(): Promise<void>;
  start(): Promise<void>;
  remove(): Promise<void>;
}

/** @param settings of the server, besides those that make it fast */
export async function makeOwnCluster(settings: Readonly<Record<string, string>> = {}): Promise<OwnCluster> {
  const scratch = await makeScratch();
  const launch = () => startEmbedded({ dataDir: join(scratch.path, 'data'), settings: { ...FORGETFUL, ...settings } });
  let running: EmbeddedCluster | undefined = await launch();
  const { host, port, superuser } = running;
  const stop = async () => {
    await running?.stop();
    running = undefined;
  };
  return {
    superuser: { host, port, ...superuser, database: 'postgres' },
    url: serverUrl({ host, port, ...superuser }),
    stop,
    async start() {
      running = await launch();
    },
    async remove() {
      await stop();
      await scratch.remove();
    },
  };
}
