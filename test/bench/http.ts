import { type Bench, isAskedFor } from './bench.ts';
import { type HttpPeer, PLAIN_ROUTES, posternPeer, startRoutes, TUNED_ROUTES } from './http-peers.ts';
import { cpuSeconds, untilIdle } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';
import { CPU, clientsCase, warmUpSeconds } from './wire.ts';
import { requestRate } from './wrk.ts';

/** Where the tuned routes take part: the number that is spoken of. */
const TUNED_CONNECTIONS = 32;
/** Of replies that take tens of milliseconds each, 64 at once. */
const TIMES_LONGER = 2;

export const HTTP: readonly Scenario[] = [
  scenario('http-point', 'one account by its key', 'SELECT abalance FROM pgbench_accounts WHERE aid = $1', '4711'),
  scenario('http-100', '100 rows of about 100 bytes', 'SELECT * FROM pgbench_accounts WHERE aid <= $1', '100'),
  scenario('http-10000', '10,000 rows of about 100 bytes', 'SELECT * FROM pgbench_accounts WHERE aid <= $1', '10000', TIMES_LONGER),
];

function scenario(name: string, what: string, sql: string, parameter: string, timesLonger = 1): Scenario {
  return {
    name,
    about: `POST /api/query: ${what}. Fastify with a pool of pg or postgres of the same size; "named" prepares statements, "4" has that many sessions`,
    run: (bench) => post(name, JSON.stringify({ sql, params: [parameter] }), bench.options.seconds * timesLonger, bench),
  };
}

async function post(scenario: string, body: string, seconds: number, bench: Bench): Promise<Series[]> {
  const { options, signal } = bench;
  const plain = await startRoutes(bench, PLAIN_ROUTES);
  const tuned = scenario === 'http-point' ? await startRoutes(bench, TUNED_ROUTES) : [];
  const postern = isAskedFor(bench, 'Postern') ? [posternPeer(bench, bench.postern)] : [];
  if (bench.ablated !== undefined) postern.push({ ...posternPeer(bench, bench.ablated), name: 'Ablated' });
  try {
    for (const peer of [...plain, ...tuned, ...postern]) await ask(peer, body, TUNED_CONNECTIONS, warmUpSeconds(options), bench);
    const series: Series[] = [];
    for (const connections of options.clients) {
      const peers = [...plain, ...(connections === TUNED_CONNECTIONS ? tuned : []), ...postern];
      const labels = { scenario, case: clientsCase(connections), ...options, signal };
      series.push(...(await interleave(labels, peers, (peer) => ask(peer, body, connections, seconds, bench))));
    }
    return series;
  } finally {
    await Promise.all([...plain, ...tuned].map(({ child }) => child.end()));
  }
}

async function ask(
  peer: HttpPeer,
  body: string,
  connections: number,
  seconds: number,
  { folder, signal }: Bench,
): Promise<Record<string, number>> {
  const before = await cpuSeconds(peer.child.pid);
  const rate = await requestRate(peer, { body, connections, seconds, folder, signal });
  const used = (await cpuSeconds(peer.child.pid)) - before;
  // What wrk asked for and did not wait for is still being worked on, at the cost of whoever comes next.
  await untilIdle(peer.child.pid, signal);
  return { 'req/s': rate, [CPU]: (used * 1e6) / (rate * seconds) };
}
