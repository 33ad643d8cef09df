import { banner } from './banner.ts';
import { CatalogMigrationError } from './catalog/database/migrate.ts';
import { ConfigError, readConfig, unknownVariables } from './config.ts';
import { EmbeddedError } from './embedded/error.ts';
import { createLogger, logObserver } from './observers/log.ts';
import { ClusterError } from './router/placement/cluster.ts';
import { type Service, startService } from './service.ts';

/** What Ctrl-C sends comes twice under `npm start`: from the terminal and, at the same time, from npm. */
const ECHO_MS = 500;

/** None while it is being started. */
let service: Service | undefined;
let toldAt: number | undefined;
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
process.on('SIGHUP', () => service?.reload());

try {
  const config = readConfig(process.env);
  const log = logObserver(createLogger(config.POSTERN_LOG_LEVEL));
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0) log({ name: 'service.warning', message: `there are no such settings, they are ignored: ${unknown.join(', ')}` });
  service = await startService(config, log);
  process.stdout.write(banner(config, service));
} catch (error) {
  // What the person who starts it can mend is one line; anything else is ours to mend and needs the stack.
  const told = [ConfigError, EmbeddedError, ClusterError, CatalogMigrationError].some((kind) => error instanceof kind);
  process.stderr.write(`postern: ${error instanceof Error ? (told ? error.message : error.stack) : String(error)}\n`);
  process.exit(1);
}

function stop(signal: string): void {
  // Nobody has been let in yet. The embedded PostgreSQL is told on the way out; a start that is cut short is made good by the next.
  if (service === undefined) process.exit(0);
  const isEcho = signal === 'SIGINT' && toldAt !== undefined && performance.now() - toldAt < ECHO_MS;
  if (isEcho) return;
  if (toldAt !== undefined) process.exit(1);
  toldAt = performance.now();
  service.close(signal).then(
    () => process.exit(0),
    (error: unknown) => {
      process.stderr.write(`postern: ${error instanceof Error ? error.stack : String(error)}\n`);
      process.exit(1);
    },
  );
}
