import { CatalogMigrationError } from './catalog/migrations.ts';
import { type Config, ConfigError, readConfig, unknownVariables } from './config.ts';
import { EmbeddedError } from './embedded/data-directory.ts';
import { endOfSupport } from './node-release.ts';
import { fanOut, type ObservationHandlers } from './observation.ts';
import { createLogger, linesForPeople, logObserver, standardOutput } from './observers/log.ts';
import { ClusterError } from './placement/cluster.ts';
import { clearTextWarning } from './ports.ts';
import { type Service, type ServiceOptions, startService } from './service.ts';
import { startWorkers, type Workers } from './workers/supervisor.ts';

/** Under `npm start`, Ctrl-C sends the signal twice: from the terminal and, at the same time, from npm. */
const ECHO_MS = 500;
const ONE_PROCESS = 'SIGUSR2 replaces workers, and there are none: POSTERN_WORKERS is 1';

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
  let service: Pick<Workers, 'reload' | 'close' | 'replaceWorkers'> | undefined;
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
  process.on('SIGUSR2', () => service?.replaceWorkers());

  try {
    const config = readConfig(environment);
    const observer = createLog(config);
    const log = fanOut(observer);
    const unknown = unknownVariables(environment);
    if (unknown.length > 0) log({ name: 'service.warning', message: `unknown settings are ignored: ${unknown.join(', ')}` });
    const inTheClear = clearTextWarning(config);
    if (inTheClear !== undefined) log({ name: 'service.warning', message: inTheClear });
    if (config.POSTERN_WORKERS > 1) {
      service = await startWorkers(config, log);
    } else {
      const alone = await startService(config, observer, options);
      service = { ...alone, replaceWorkers: () => log({ name: 'service.warning', message: ONE_PROCESS }) };
      process.stdout.write(await greet(config, alone));
    }
    const ended = endOfSupport(process.versions.node);
    if (ended !== undefined) log({ name: 'service.warning', message: ended });
  } catch (error) {
    process.stderr.write(lineOf(error));
    process.exit(1);
  }
}

/** Lines for people on a terminal, JSON elsewhere. */
export function createLog({ POSTERN_LOG_LEVEL: level }: Config, worker?: number): ObservationHandlers {
  // Asking has made a pipe non-blocking, so that a slow reader does not stop the process.
  const destination = process.stdout.isTTY ? linesForPeople(standardOutput) : undefined;
  process.once('exit', () => standardOutput.end());
  // Nobody may be there any more to read a greeting or why the service ends.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  return logObserver(createLogger(level, { destination, ...(worker === undefined ? {} : { worker }) }));
}

/** An error that the operator can correct is one line; any other is a bug, whose stack is needed. */
export function lineOf(error: unknown): string {
  const isExpected = [ConfigError, EmbeddedError, ClusterError, CatalogMigrationError].some((kind) => error instanceof kind);
  return `postern: ${error instanceof Error ? (isExpected ? error.message : error.stack) : String(error)}\n`;
}
