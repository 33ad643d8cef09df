import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import type { Bench } from './bench.ts';
import { findPgBouncer } from './pgbouncer.ts';
import { findPgpool, PGPOOL_CHILDREN } from './pgpool.ts';
import { ownVariables } from './postern.ts';
import { judge, POSTERN, reachTable } from './reach.ts';
import type { Series } from './series.ts';
import { ratioOf, spreadOf } from './statistics.ts';
import { figure, spread, table } from './table.ts';
import { CPU } from './wire.ts';
import { hasWrk } from './wrk.ts';

/** All that was found, as Markdown that reads well in a terminal too. */
export async function report(bench: Bench, series: readonly Series[], abouts: ReadonlyMap<string, string>): Promise<string> {
  const sections = [...abouts].flatMap(([scenario, about]) => {
    const own = series.filter((one) => one.scenario === scenario);
    return own.length === 0 ? [] : [`## ${scenario}\n\n${about}\n\n${figuresTable(own)}`];
  });
  return `${['# Postern beside others', await conditions(bench), `## Processor time\n\n${cpuTable(series)}`, `## Reach\n\n${reachTable(judge(series))}`, ...sections].join('\n\n')}\n`;
}

/** To which Postern's processor time is compared. */
const CPU_PEERS = ['PgBouncer', 'Floor', 'Fastify + pg'];

/** Postern's processor time for a transaction, a login or a call, and its ratio to that of others. */
function cpuTable(series: readonly Series[]): string {
  const rows = series.flatMap(({ scenario, case: label, unit, figures }) => {
    const own = figures.get(POSTERN);
    if (unit !== CPU || own === undefined) return [];
    const ratios = CPU_PEERS.map((peer) => ratioOf(own, figures.get(peer) ?? []));
    return [[`${scenario}, ${label}`, spread(spreadOf(own)), ...ratios.map((ratio) => (ratio === undefined ? '' : spread(ratio)))]];
  });
  return table([CPU, POSTERN, ...CPU_PEERS.map((peer) => `to ${peer}`)], rows);
}

/** What happened once, or is a ratio itself. */
const WITHOUT_RATIO = ['others meanwhile', '% in > 20 ms', 'MB before', '% of busy tps alone'];

/** A line for each figure of each case, and one with Postern's ratio to every other. */
export function figuresTable(series: readonly Series[]): string {
  const peers = [...new Set(series.flatMap(({ figures }) => [...figures.keys()]))];
  const rows = series.flatMap(({ case: label, unit, figures }) => {
    const own = figures.get(POSTERN) ?? [];
    const ratio = (peer: string) => ratioOf(own, figures.get(peer) ?? []);
    return [
      [`${label}, ${unit}`, ...peers.map((peer) => (figures.has(peer) ? spread(spreadOf(figures.get(peer) ?? [])) : ''))],
      ...(own.length === 0 || WITHOUT_RATIO.includes(unit)
        ? []
        : [['Postern to it', ...peers.map((peer) => (peer === POSTERN ? '' : ratioCell(ratio(peer)?.median)))]]),
    ];
  });
  return table(['', ...peers], rows);
}

function ratioCell(ratio: number | undefined): string {
  return ratio === undefined ? '' : `× ${figure(ratio)}`;
}

async function conditions({ options, cluster, missing }: Bench): Promise<string> {
  const [pgbouncer, pgpool, wrk] = await Promise.all([findPgBouncer(), findPgpool(), hasWrk()]);
  const processors = cpus();
  const settings = Object.entries(ownVariables()).map(([name, value]) => `${name}=${value}`);
  const lines = [
    `${processors.length} cores (${processors[0]?.model.trim() ?? 'unknown'}), ${await kernel()}, shared by all: clients, poolers and PostgreSQL.`,
    `Node ${process.versions.node}, PostgreSQL ${cluster.version}, ${version('PgBouncer', pgbouncer)}, ${version('Pgpool-II', pgpool)}; loads by pgbench (${options.threads} ${options.threads === 1 ? 'thread' : 'threads'}) and ${wrk ? 'wrk' : 'Node, for want of wrk'}.`,
    `Medians (and the least and the most) of ${options.rounds} rounds of ${options.seconds} s, each of them one peer after the other; ratios are medians of the rounds' ratios.`,
    `Pools of ${options.pool} backend sessions; Pgpool-II has a process with a session for each of up to ${PGPOOL_CHILDREN} clients. "PgBouncer again" is the same a second time: the noise.`,
    '"Floor" relays sockets one to one and knows no protocol: the least that Node can do. It pools nothing, so it has a backend for each client. That of logins answers each message with bytes that were encoded before.',
    'Everybody logs in with SCRAM-SHA-256, without TLS, by TCP to 127.0.0.1; poolers reach PostgreSQL through its Unix socket. PostgreSQL runs with fsync off.',
    ...(settings.length === 0 ? [] : [`Set for Postern: ${settings.join(' ')}.`]),
    ...(pgbouncer === undefined || pgbouncer.prepares
      ? []
      : [`PgBouncer ${pgbouncer.version} cannot keep prepared statements in transaction mode (1.21 can).`]),
    ...[...missing].map(([peer, why]) => `Left out: ${peer} (${why}).`),
  ];
  return lines.map((line) => `- ${line}`).join('\n');
}

function version(name: string, found: { readonly version: string } | undefined): string {
  return found === undefined ? `no ${name}` : `${name} ${found.version}`;
}

async function kernel(): Promise<string> {
  const [, release] = /^Linux version (\S+)/.exec(await readFile('/proc/version', 'utf8').catch(() => '')) ?? [];
  return release === undefined ? process.platform : `Linux ${release}`;
}
