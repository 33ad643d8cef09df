import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Bench, benchLogin, isAskedFor, posternLogin } from './bench.ts';
import { type Child, launch, waitFor } from './child.ts';
import type { WireLogin } from './pgbench.ts';
import { findPgBouncer, startPgBouncer } from './pgbouncer.ts';
import { findPgpool, startPgpool } from './pgpool.ts';
import { type Postern, startPostern } from './postern.ts';
import { pinToFirst } from './proc.ts';

const FLOOR_SERVER = fileURLToPath(new URL('floor-server.js', import.meta.url));
const LOGIN_FLOOR_SERVER = fileURLToPath(new URL('login-floor-server.js', import.meta.url));

export type WirePeerName =
  | 'Postgres'
  | 'PgBouncer'
  | 'PgBouncer again'
  | 'PgBouncer 64k'
  | 'Pgpool-II'
  | 'Floor'
  | 'Floor of logins'
  | 'Postern'
  | 'Ablated';

/** Somewhere to log in to. */
export interface WirePeer {
  readonly name: WirePeerName;
  readonly login: WireLogin;
  /** Its one process; undefined where there are many. */
  readonly child: Child | undefined;
  /** Whether prepared statements work through it. */
  readonly prepares: boolean;
}

/** Starts peers when a scenario wants them. */
export class WirePeers {
  readonly #bench: Bench;
  readonly #started = new Map<WirePeerName, WirePeer | undefined | Promise<WirePeer | undefined>>();

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  /** Those of these that are to be had and are asked for, in this order; the same ones for all scenarios. */
  async take(...names: readonly WirePeerName[]): Promise<WirePeer[]> {
    const peers: WirePeer[] = [];
    const { postern, ablated } = this.#bench;
    for (const name of names.filter((name) => isAskedFor(this.#bench, name))) {
      const started = this.#started.get(name) ?? (name === 'Postern' ? posternPeer(this.#bench, postern) : this.start(name));
      this.#started.set(name, started);
      const peer = await started;
      if (peer !== undefined) peers.push(peer);
    }
    if (ablated !== undefined) peers.push({ ...posternPeer(this.#bench, ablated), name: 'Ablated' });
    return peers;
  }

  /** A new one, for what must not have been used before. Whoever asked for it may end it, or leave that to the end of the bench. */
  async start(name: WirePeerName): Promise<WirePeer | undefined> {
    const peer = await startPeer(this.#bench, name);
    if (typeof peer !== 'string') {
      this.#bench.closing.defer(() => peer.child?.end());
      if (this.#bench.options.pin && peer.child !== undefined) await pinToFirst(peer.child.pid);
      return peer;
    }
    this.#bench.missing.set(name, peer);
    return undefined;
  }
}

/** @returns the reason when it cannot be had */
async function startPeer(bench: Bench, name: WirePeerName): Promise<WirePeer | string> {
  switch (name) {
    case 'Postgres':
      return { name, login: benchLogin(bench, bench.cluster.port), child: undefined, prepares: true };
    case 'PgBouncer':
    case 'PgBouncer again':
      return pgbouncer(bench, name);
    case 'PgBouncer 64k':
      return pgbouncer(bench, name, 65_536);
    case 'Pgpool-II':
      return pgpool(bench, name);
    case 'Floor':
      return floor(bench, FLOOR_SERVER, [`${bench.cluster.host}/.s.PGSQL.${bench.cluster.port}`]);
    case 'Floor of logins':
      return floor(bench, LOGIN_FLOOR_SERVER);
    case 'Ablated':
    case 'Postern':
      return posternPeer(bench, await startPostern({ ...bench, pool: bench.options.pool }));
  }
}

function posternPeer(bench: Bench, postern: Postern): WirePeer {
  return { name: 'Postern', login: posternLogin(bench, postern), child: postern.child, prepares: true };
}

async function pgbouncer(bench: Bench, name: WirePeerName, packetBufferBytes?: number): Promise<WirePeer | string> {
  const found = await findPgBouncer();
  if (found === undefined) return 'not installed, and PGBOUNCER names none';
  const { child, port } = await startPgBouncer(found, {
    ...bench,
    pool: bench.options.pool,
    ...(packetBufferBytes === undefined ? {} : { packetBufferBytes }),
  });
  return { name, login: benchLogin(bench, port), child, prepares: found.prepares };
}

/** What relaying or answering alone costs in Node: the ratio to it is what Postern's own code costs. */
async function floor(bench: Bench, server: string, args: readonly string[] = []): Promise<WirePeer> {
  const child = launch({ command: process.execPath, args: [server, ...args], log: join(bench.folder, `${basename(server)}.log`) });
  const { port } = await waitFor(child, async () => {
    const output = await child.output();
    return output.includes('\n') ? (JSON.parse(output) as { readonly port: number }) : undefined;
  });
  return { name: 'Floor', login: benchLogin(bench, port), child, prepares: true };
}

async function pgpool(bench: Bench, name: WirePeerName): Promise<WirePeer | string> {
  const found = await findPgpool();
  if (found === undefined) return 'not installed';
  const { child, port } = await startPgpool(found, bench);
  // Fast: SIGTERM would wait for clients, and its children outlive a SIGKILL.
  bench.closing.defer(() => child.end('SIGINT'));
  return { name, login: benchLogin(bench, port), child: undefined, prepares: true };
}
