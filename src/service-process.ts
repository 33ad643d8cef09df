import { CatalogMigrationError } from './catalog/database/migrate.ts';
import { type Config, ConfigError, readConfig, unknownVariables } from './config.ts';
import { EmbeddedError } from './embedded/error.ts';
import { createLogger, linesForPeople, logObserver } from './observers/log.ts';
import { ClusterError } from './router/placement/cluster.ts';
import { type Service, type ServiceOptions, startService } from './service.ts';

/** Under `npm start`, Ctrl-C sends the signal twice: from the terminal and, at the same time, from npm. */
const ECHO_MS = 500;

/** What is said when both doors are open. */
export type Greet = (config: Config, service: Service) => Promise<string>;

/**
 * Runs the service until a signal stops it. On a terminal the log is lines for people, elsewhere JSON.
 * @param environment as `process.env`
 */
export async function runService(
  environment: Readonly<Record<string, string | undefined>>,
  greet: Greet,
  options?: ServiceOptions,
): Promise<void> {
  /** Undefined until it has started. */
  let service: Service | undefined;
  let stoppedAt: number | undefined;
  const stop = (signal: string): void => {
    // There are no clients yet. The exit handler stops the embedded PostgreSQL, and the next start completes an interrupted one.
    if (service === undefined) process.exit(0);
    const isEcho = signal === 'SIGINT' && stoppedAt !== undefined && performance.now() - stoppedAt < ECHO_MS;
    if (isEcho) return;
    if (stoppedAt !== undefined) process.exit(1);
    stoppedAt = performance.now();
    service.close(signal).then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(`postern: ${error instanceof Error ? error.stack : String(error)}\n`);
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
  process.on('SIGHUP', () => service?.reload());

  try {
    const config = readConfig(environment);
    const log = logObserver(createLogger(config.POSTERN_LOG_LEVEL, process.stdout.isTTY ? linesForPeople(process.stdout) : undefined));
    const unknown = unknownVariables(environment);
    if (unknown.length > 0) log({ name: 'service.warning', message: `unknown settings are ignored: ${unknown.join(', ')}` });
    service = await startService(config, log, options);
    process.stdout.write(await greet(config, service));
  } catch (error) {
    // An error that the operator can correct is one line; any other is a bug, whose stack is needed.
    const isExpected = [ConfigError, EmbeddedError, ClusterError, CatalogMigrationError].some((kind) => error instanceof kind);
    process.stderr.write(`postern: ${error instanceof Error ? (isExpected ? error.message : error.stack) : String(error)}\n`);
    process.exit(1);
  }
}
