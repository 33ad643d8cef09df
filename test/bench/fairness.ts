import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TestOrganization } from '../support/doors.ts';
import { type Bench, benchLogin, posternLogin } from './bench.ts';
import { run } from './child.ts';
import { pgbench, type WireLogin } from './pgbench.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';
import { readLogs, stallsIn } from './stalls.ts';
import { warmUp } from './wire.ts';
import type { WirePeer } from './wire-peers.ts';

const HTTP_LOAD = fileURLToPath(new URL('http-load.js', import.meta.url));
const BUSY_CLIENTS = 200;
/** Statements of the quiet organization, a second: few, so that it is their latency that is measured. */
const QUIET_RATE = 50;
/** A percentile of fewer statements says little. */
const TIMES_LONGER = 4;
const VERIFICATIONS = 4;

/** What another organization, or nobody in particular, does meanwhile. */
interface Neighbour {
  readonly name: string;
  /** Of pgbench, by the busy organization; or else requests to Postern's HTTP door. */
  readonly args?: (folder: string) => Promise<readonly string[]>;
  readonly request?: { readonly path: string; readonly method: string; readonly hasKey: boolean; readonly connections: number };
}

const NEIGHBOURS: readonly Neighbour[] = [
  { name: 'alone' },
  { name: `beside ${BUSY_CLIENTS} × -S`, args: async () => ['-S'] },
  { name: `beside ${BUSY_CLIENTS} × -N`, args: async () => ['-N'] },
  { name: `beside ${BUSY_CLIENTS} × count(*)`, args: (folder) => script(folder, 'SELECT count(*) FROM generate_series(1, 200000);\n') },
  {
    name: `beside ${BUSY_CLIENTS} without a key`,
    request: { path: '/api/query', method: 'POST', hasKey: false, connections: BUSY_CLIENTS },
  },
  {
    name: `beside ${VERIFICATIONS} audit/verify`,
    request: { path: '/api/audit/verify', method: 'GET', hasKey: true, connections: VERIFICATIONS },
  },
];

export const FAIRNESS: Scenario = {
  name: 'fairness',
  about: `${QUIET_RATE} × SELECT 1 a second of one organization, alone and beside busy neighbours, and what those get done beside it`,
  async run(bench, wire) {
    const peers = await wire.take('PgBouncer', 'PgBouncer again', 'Postern');
    const quiet = await bench.postern.signUp();
    await bench.cluster.admit(quiet.id);
    await warmUp(peers, ['-S'], bench);
    const series: Series[] = [];
    for (const neighbour of NEIGHBOURS) {
      const here = neighbour.request === undefined ? peers : peers.filter(({ name }) => name === 'Postern');
      const labels = { scenario: 'fairness', case: neighbour.name, ...bench.options, signal: bench.signal };
      series.push(...(await interleave(labels, here, (peer) => measure(peer, quiet, neighbour, bench))));
    }
    return series;
  },
};

async function measure(peer: WirePeer, quiet: TestOrganization, neighbour: Neighbour, bench: Bench): Promise<Record<string, number>> {
  const folder = await mkdtemp(join(bench.folder, 'fairness-'));
  try {
    const args = await neighbour.args?.(folder);
    const alone = args === undefined ? undefined : await busy(peer, args, seconds(bench), bench);
    const [beside] = await Promise.all([
      args === undefined ? undefined : busy(peer, args, seconds(bench) + 1, bench),
      neighbour.request === undefined ? undefined : requests(neighbour.request, bench),
      pgbench(quietLogin(peer, quiet, bench), {
        args: [...(await script(folder, 'SELECT 1;\n')), `--rate=${QUIET_RATE}`, '--log', `--log-prefix=${join(folder, 'log')}`],
        clients: 1,
        seconds: seconds(bench),
        signal: bench.signal,
      }),
    ]);
    const { 'ms p50': p50, 'ms p99': p99 } = stallsIn(await readLogs(folder));
    return {
      'ms p50': p50,
      'ms p99': p99,
      ...(alone === undefined || beside === undefined
        ? {}
        : { 'busy tps': beside.tps, '% of busy tps alone': (100 * beside.tps) / alone.tps }),
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}

function seconds({ options }: Bench): number {
  return TIMES_LONGER * options.seconds;
}

function busy({ login }: WirePeer, args: readonly string[], duration: number, { signal }: Bench): Promise<{ readonly tps: number }> {
  return pgbench(login, { args, clients: BUSY_CLIENTS, seconds: duration, signal });
}

function quietLogin({ name, login }: WirePeer, quiet: TestOrganization, bench: Bench): WireLogin {
  const own = { ...bench, organization: quiet };
  return name === 'Postern' ? posternLogin(own, bench.postern) : benchLogin(own, login.port);
}

async function script(folder: string, sql: string): Promise<readonly string[]> {
  const file = join(await mkdtemp(join(folder, 'script-')), 'script.sql');
  await writeFile(file, sql);
  return ['-f', file];
}

/** Whatever they are answered with: who has no key is refused. */
async function requests({ path, method, hasKey, connections }: NonNullable<Neighbour['request']>, bench: Bench): Promise<void> {
  const { postern, organization, signal } = bench;
  const task = {
    url: `${postern.httpUrl}${path}`,
    method,
    ...(hasKey ? { key: organization.apiKey } : {}),
    ...(method === 'GET' ? {} : { body: JSON.stringify({ sql: 'SELECT 1' }) }),
    connections,
    seconds: seconds(bench) + 1,
    isRefused: true,
  };
  await run(process.execPath, [HTTP_LOAD, JSON.stringify(task)], { signal });
}
