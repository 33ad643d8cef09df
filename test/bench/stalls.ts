import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bench } from './bench.ts';
import { pgbench } from './pgbench.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';
import { warmUp } from './wire.ts';
import type { WirePeer } from './wire-peers.ts';

const SHORT = ['-S', '-M', 'prepared'];
const SHORT_CLIENTS = 32;
const SLOW_CLIENTS = 3;
const SLOW_SQL = 'SELECT pg_sleep(0.2);\n';
const STALL_MS = 20;
/** Stalls are rare: what is long enough for a mean is not for them. */
const TIMES_LONGER = 2;

export const STALLS: Scenario = {
  name: 'stalls',
  about: `${SHORT_CLIENTS} clients with prepared selects, alone and beside ${SLOW_CLIENTS} that run statements of 200 ms; all transactions are looked at, not a percentile`,
  async run(bench, wire) {
    const peers = (await wire.take('PgBouncer', 'PgBouncer again', 'Postern')).filter(({ prepares }) => prepares);
    await warmUp(peers, SHORT, bench);
    const series: Series[] = [];
    for (const [label, slow] of [
      ['alone', 0],
      [`beside ${SLOW_CLIENTS} slow`, SLOW_CLIENTS],
    ] as const) {
      const labels = { scenario: 'stalls', case: label, ...bench.options, signal: bench.signal };
      series.push(...(await interleave(labels, peers, (peer) => watch(peer, slow, bench))));
    }
    return series;
  },
};

async function watch(peer: WirePeer, slow: number, bench: Bench): Promise<Record<string, number>> {
  const folder = await mkdtemp(join(bench.folder, 'stalls-'));
  try {
    const seconds = TIMES_LONGER * bench.options.seconds;
    const log = ['-l', `--log-prefix=${join(folder, 'log')}`];
    const [{ tps }] = await Promise.all([
      pgbench(peer.login, { args: [...SHORT, ...log], clients: SHORT_CLIENTS, seconds, signal: bench.signal }),
      slow === 0 ? undefined : beside(peer, slow, seconds, folder, bench),
    ]);
    return { ...stallsIn(await readLogs(folder)), tps };
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** A second longer: the short ones are never without them. */
async function beside(peer: WirePeer, clients: number, seconds: number, folder: string, { signal }: Bench): Promise<void> {
  const script = join(folder, 'slow.sql');
  await writeFile(script, SLOW_SQL);
  await pgbench(peer.login, { args: ['-f', script], clients, seconds: seconds + 1, signal });
}

export async function readLogs(folder: string): Promise<string> {
  const files = (await readdir(folder)).filter((name) => name.startsWith('log'));
  return (await Promise.all(files.map((name) => readFile(join(folder, name), 'utf8')))).join('');
}

/**
 * From pgbench's log, a transaction a line: client, number, microseconds, script, and when it ended, in seconds and microseconds.
 * "others meanwhile" are the transactions that ended while the longest went on: none when everything stood still, many when it
 * was this client's turn that did not come.
 * @see https://www.postgresql.org/docs/current/pgbench.html
 */
export function stallsIn(log: string): Record<'ms longest' | 'others meanwhile' | 'ms p50' | 'ms p99' | '% in > 20 ms', number> {
  const transactions = [...log.matchAll(/^\d+ \d+ (\d+) \d+ (\d+) (\d+)/gm)]
    .map(([, tookUs, seconds, us]) => ({ tookMs: Number(tookUs) / 1000, endMs: Number(seconds) * 1000 + Number(us) / 1000 }))
    .sort((a, b) => a.tookMs - b.tookMs);
  const longest = transactions.at(-1) ?? { tookMs: 0, endMs: 0 };
  const meanwhile = transactions.filter(({ endMs }) => endMs > longest.endMs - longest.tookMs && endMs <= longest.endMs);
  const total = (some: typeof transactions) => some.reduce((sum, { tookMs }) => sum + tookMs, 0);
  return {
    'ms longest': longest.tookMs,
    'others meanwhile': meanwhile.length - 1,
    'ms p50': transactions[Math.floor(0.5 * transactions.length)]?.tookMs ?? 0,
    'ms p99': transactions[Math.floor(0.99 * transactions.length)]?.tookMs ?? 0,
    '% in > 20 ms': (100 * total(transactions.filter(({ tookMs }) => tookMs > STALL_MS))) / total(transactions),
  };
}
