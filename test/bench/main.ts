/** Postern and what people use in its place, measured in turn: `npm run bench`. */
import { writeFile } from 'node:fs/promises';
import { makeScratch } from '../support/scratch.ts';
import { ablationTable, measureWithout } from './ablation.ts';
import { BACKUPS } from './backups.ts';
import { type Bench, openBench } from './bench.ts';
import { Closing } from './closing.ts';
import { startCluster } from './cluster.ts';
import { CLUSTERS } from './clusters.ts';
import { FAIRNESS } from './fairness.ts';
import { HTTP } from './http.ts';
import { HTTP_LARGE } from './http-large.ts';
import { IDLE } from './idle.ts';
import { LOGINS } from './logins.ts';
import { OPERATORS } from './operators.ts';
import { type Options, readOptions, USAGE } from './options.ts';
import { makeProfileFolder } from './postern.ts';
import { leaveFirst } from './proc.ts';
import { figuresTable, report } from './report.ts';
import { COPY, ROWS } from './results.ts';
import type { Scenario } from './scenario.ts';
import type { Series } from './series.ts';
import { STALLS } from './stalls.ts';
import { WIRE } from './wire.ts';
import { WirePeers } from './wire-peers.ts';
import { WORKERS } from './workers.ts';

const SCENARIOS: readonly Scenario[] = [
  ...WIRE,
  ROWS,
  COPY,
  LOGINS,
  IDLE,
  STALLS,
  FAIRNESS,
  ...HTTP,
  HTTP_LARGE,
  WORKERS,
  CLUSTERS,
  OPERATORS,
  BACKUPS,
];

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => interrupted.abort(new Error(`ended by ${signal}`)));

const closing = new Closing();
try {
  await bench(readOptions(process.argv.slice(2)), interrupted.signal);
} catch (error) {
  const said = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.stderr.write(`bench: ${interrupted.signal.aborted ? String(interrupted.signal.reason) : said}\n`);
  process.exitCode = 1;
} finally {
  await closing.close();
}

async function bench(options: Options, signal: AbortSignal): Promise<void> {
  const scenarios = chosen(options);
  if (options.pin) await leaveFirst();
  const scratch = await makeScratch();
  closing.defer(() => scratch.remove());
  const profiles = options.profile ? await makeProfileFolder() : undefined;
  const missing = new Map(options.quick ? [['Pgpool-II', '--quick']] : []);
  const cluster = await startCluster(scratch.path, closing);
  const opened = await openBench({ options, cluster, closing, folder: scratch.path, signal, profiles, missing });

  if (options.without.length > 0) {
    const measured = await measureWithout(opened, (without) => measureAll(scenarios, without));
    process.stdout.write(`\n${ablationTable(measured)}\n`);
    return;
  }
  const wire = new WirePeers(opened);
  const series: Series[] = [];
  for (const scenario of scenarios) {
    const found = await measure(scenario, opened, wire);
    process.stdout.write(`\n${scenario.name}: ${scenario.about}\n${found.length === 0 ? 'nothing to measure' : figuresTable(found)}\n`);
    series.push(...found);
  }
  const text = await report(opened, series, new Map(scenarios.map(({ name, about }) => [name, about])));
  process.stdout.write(`\n${text.slice(0, text.indexOf('\n## ', text.indexOf('## Reach')))}\n`);
  if (options.out !== undefined) await writeFile(options.out, text);
  if (profiles !== undefined) process.stdout.write(`profiles: ${profiles}\n`);
}

async function measureAll(scenarios: readonly Scenario[], opened: Bench): Promise<Series[]> {
  const wire = new WirePeers(opened);
  const series: Series[] = [];
  for (const scenario of scenarios) series.push(...(await measure(scenario, opened, wire)));
  return series;
}

/** One that fails is left out, and said; the others are worth having all the same. */
async function measure(scenario: Scenario, opened: Bench, wire: WirePeers): Promise<Series[]> {
  try {
    return await scenario.run(opened, wire);
  } catch (error) {
    opened.signal.throwIfAborted();
    process.stderr.write(`bench: ${scenario.name}: ${error instanceof Error ? error.stack : String(error)}\n`);
    process.exitCode = 1;
    opened.missing.set(scenario.name, 'it failed');
    return [];
  }
}

function chosen({ scenarios }: Options): readonly Scenario[] {
  const found = SCENARIOS.filter(({ name }) => scenarios.length === 0 || scenarios.some((beginning) => name.startsWith(beginning)));
  if (found.length > 0) return found;
  throw new TypeError(`there is no such scenario; there are ${SCENARIOS.map(({ name }) => name).join(', ')}\n${USAGE}`);
}
