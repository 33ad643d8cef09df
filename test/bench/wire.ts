import type { Bench } from './bench.ts';
import { pgbench } from './pgbench.ts';
import { cpuSeconds } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';
import type { WirePeer, WirePeers } from './wire-peers.ts';

type Mode = 'simple' | 'extended' | 'prepared';

/** What has 32 clients or one has many; what has 64 processes does not get better with fewer. */
const PGPOOL_CLIENTS = 32;

export const WIRE: readonly Scenario[] = (['simple', 'extended', 'prepared'] as const).map((mode) => ({
  name: `wire-${mode}`,
  about: `pgbench -S -M ${mode}: one account by its key`,
  run: (bench, wire) => select(mode, bench, wire),
}));

async function select(mode: Mode, bench: Bench, wire: WirePeers): Promise<Series[]> {
  const all = await wire.take('Postgres', 'PgBouncer', 'PgBouncer again', 'Pgpool-II', 'Floor', 'Postern');
  const peers = mode === 'prepared' ? all.filter(({ prepares }) => prepares) : all;
  const args = ['-S', '-M', mode, '-j', String(bench.options.threads)];
  await warmUp(peers, args, bench);
  const series: Series[] = [];
  for (const clients of bench.options.clients) {
    const here = peers.filter(({ name }) => name !== 'Pgpool-II' || clients === PGPOOL_CLIENTS);
    const labels = { scenario: `wire-${mode}`, case: clientsCase(clients), ...bench.options, signal: bench.signal };
    series.push(...(await interleave(labels, here, (peer) => load(peer, args, clients, bench))));
  }
  return series;
}

export function clientsCase(clients: number): string {
  return clients === 1 ? '1 client' : `${clients} clients`;
}

/** For backends to be opened and code to be compiled, which nobody's first round should pay for. */
export function warmUpSeconds({ quick }: Bench['options']): number {
  return quick ? 1 : 2;
}

export async function warmUp(peers: readonly WirePeer[], args: readonly string[], { options, signal }: Bench): Promise<void> {
  for (const { login } of peers) await pgbench(login, { args, clients: 32, seconds: warmUpSeconds(options), signal });
}

export async function load(
  { login, child }: WirePeer,
  args: readonly string[],
  clients: number,
  bench: Bench,
): Promise<Record<string, number>> {
  const before = child === undefined ? 0 : await cpuSeconds(child.pid);
  const { tps, transactions } = await pgbench(login, { args, clients, seconds: bench.options.seconds, signal: bench.signal });
  if (child === undefined) return { tps };
  const used = (await cpuSeconds(child.pid)) - before;
  return { tps, [CPU]: (used * 1e6) / transactions };
}

export const CPU = 'µs CPU';
