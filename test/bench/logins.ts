import { fileURLToPath } from 'node:url';
import type { Bench } from './bench.ts';
import { run } from './child.ts';
import { cpuSeconds } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave } from './series.ts';
import { CPU, warmUpSeconds } from './wire.ts';
import type { WirePeer } from './wire-peers.ts';

const LOAD = fileURLToPath(new URL('login-load.js', import.meta.url));
/** Of the load, so that it is not the limit where there are cores for it. */
const PROCESSES = 2;
const CLIENTS = 16;

export const LOGINS: Scenario = {
  name: 'logins',
  about: `connect, SCRAM-SHA-256, ReadyForQuery, leave: ${PROCESSES} × ${CLIENTS} clients that know their salted password by heart`,
  async run(bench, wire) {
    const peers = await wire.take('PgBouncer', 'PgBouncer again', 'Pgpool-II', 'Floor of logins', 'Postern');
    const labels = { scenario: 'logins', case: `${PROCESSES * CLIENTS} clients`, ...bench.options, signal: bench.signal };
    // Not counted. It takes 10,000 logins until code is compiled for good: a few seconds, where as many statements take less than one.
    for (const peer of peers) await logIn(peer, 2 * warmUpSeconds(bench.options), bench);
    return interleave(labels, peers, (peer) => logIn(peer, bench.options.seconds, bench));
  },
};

async function logIn({ login, child }: WirePeer, seconds: number, { signal }: Bench): Promise<Record<string, number>> {
  const before = child === undefined ? 0 : await cpuSeconds(child.pid);
  const task = JSON.stringify({ login, clients: CLIENTS, seconds });
  const loads = Array.from({ length: PROCESSES }, () => run(process.execPath, [LOAD, task], { signal }));
  const done: { readonly logins: number; readonly seconds: number }[] = (await Promise.all(loads)).map((said) => JSON.parse(said));
  const rate = done.reduce((sum, { logins, seconds }) => sum + logins / seconds, 0);
  if (child === undefined) return { 'logins/s': rate };
  const logins = done.reduce((sum, { logins }) => sum + logins, 0);
  return { 'logins/s': rate, [CPU]: ((await cpuSeconds(child.pid)) - before) * (1e6 / logins) };
}
