import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Bench } from './bench.ts';
import { isAskedFor } from './bench.ts';
import { residentBytes } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave } from './series.ts';
import { WireClients } from './wire-login.ts';
import type { WirePeerName, WirePeers } from './wire-peers.ts';

const CLIENTS = 2_000;
/** Enough to have everything once that a process has once, whoever comes later. */
const FIRST_CLIENTS = 50;
const AT_ONCE = 25;
/** Query */
const SELECT_1 = Buffer.from('Q\0\0\0\rSELECT 1\0');
const SETTLE_MS = 1_000;
/** Processes are started for it, and memory does not depend on how busy the machine is. */
const ROUNDS_MAX = 2;

export const IDLE: Scenario = {
  name: 'idle',
  about: `resident memory that ${CLIENTS} clients add to a new process; each has asked one thing and stays`,
  async run(bench, wire) {
    const names = (['PgBouncer', 'Postern'] as const).filter((name) => isAskedFor(bench, name));
    const rounds = Math.min(bench.options.rounds, ROUNDS_MAX);
    const labels = { scenario: 'idle', case: `${CLIENTS} clients`, rounds, signal: bench.signal };
    return interleave(
      labels,
      names.map((name) => ({ name })),
      ({ name }) => crowd(name, bench, wire),
    );
  },
};

async function crowd(name: WirePeerName, { signal }: Bench, wire: WirePeers): Promise<Record<string, number>> {
  const peer = await wire.start(name);
  if (peer?.child === undefined) return {};
  const clients = new WireClients(peer.login);
  const sockets: Socket[] = [];
  try {
    await join(clients, FIRST_CLIENTS, sockets, signal);
    const before = await settled(peer.child.pid);
    await join(clients, CLIENTS, sockets, signal);
    const after = await settled(peer.child.pid);
    return { 'kB/client': (after - before) / CLIENTS / 1000, 'MB before': before / 1e6 };
  } finally {
    for (const socket of sockets) socket.destroy();
    await peer.child.end();
  }
}

async function join(clients: WireClients, count: number, sockets: Socket[], signal: AbortSignal): Promise<void> {
  for (let joined = 0; joined < count; joined += AT_ONCE) {
    signal.throwIfAborted();
    sockets.push(...(await Promise.all(Array.from({ length: AT_ONCE }, () => joinOne(clients)))));
  }
}

async function joinOne(clients: WireClients): Promise<Socket> {
  const socket = await clients.open();
  socket.on('error', () => {});
  socket.write(SELECT_1);
  await once(socket, 'data');
  return socket;
}

async function settled(pid: number): Promise<number> {
  await delay(SETTLE_MS);
  return residentBytes(pid);
}
