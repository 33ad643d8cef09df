import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { type Bench, posternLogin } from './bench.ts';
import { pgbench } from './pgbench.ts';
import { type Postern, startPostern } from './postern.ts';
import { cpuSeconds } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';
import { CPU, clientsCase, warmUpSeconds } from './wire.ts';

/** Postern with so many workers. */
interface Staffed {
  readonly name: string;
  readonly postern: Postern;
}

const ARGS = ['-S', '-M', 'simple'];

/** What more processes bring, and what they cost: the processor time of a transaction, in all of them together. */
export const WORKERS: Scenario = {
  name: 'workers',
  about: 'pgbench -S -M simple with 1 … n processes on the same port (POSTERN_WORKERS)',
  async run(bench) {
    const peers: Staffed[] = [];
    for (let workers = 1; workers <= Math.max(2, availableParallelism()); workers *= 2) {
      const postern = await startPostern({ ...bench, pool: bench.options.pool, env: { POSTERN_WORKERS: String(workers) } });
      bench.closing.defer(() => postern.child.end());
      peers.push({ name: workers === 1 ? '1 worker' : `${workers} workers`, postern });
    }
    for (const peer of peers) await measure(peer, 32, warmUpSeconds(bench.options), bench);
    const series: Series[] = [];
    for (const clients of bench.options.clients) {
      const labels = { scenario: 'workers', case: clientsCase(clients), ...bench.options, signal: bench.signal };
      series.push(...(await interleave(labels, peers, (peer) => measure(peer, clients, bench.options.seconds, bench))));
    }
    return series;
  },
};

async function measure({ postern }: Staffed, clients: number, seconds: number, bench: Bench): Promise<Record<string, number>> {
  const args = [...ARGS, '-j', String(bench.options.threads)];
  const before = await cpuOfAll(postern.child.pid);
  const { tps, transactions } = await pgbench(posternLogin(bench, postern), { args, clients, seconds, signal: bench.signal });
  return { tps, [CPU]: (((await cpuOfAll(postern.child.pid)) - before) * 1e6) / transactions };
}

/** Of a process and its workers. @see proc_pid_children(5) */
async function cpuOfAll(pid: number): Promise<number> {
  const children = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).split(' ').filter(Boolean).map(Number);
  const used = await Promise.all([pid, ...children].map(cpuSeconds));
  return used.reduce((sum, seconds) => sum + seconds, 0);
}
