import type { TestOrganization } from '../support/doors.ts';
import type { Closing } from './closing.ts';
import { BENCH_ROLE, type BenchCluster } from './cluster.ts';
import type { Options } from './options.ts';
import { initialise, type WireLogin } from './pgbench.ts';
import { type Postern, startPostern } from './postern.ts';

/** 500,000 accounts, 64 MB: what is measured is the way to Postgres, not its disk. */
const SCALE = 5;

/** What a scenario has at hand. */
export interface Bench {
  readonly options: Options;
  readonly cluster: BenchCluster;
  readonly closing: Closing;
  /** For files; removed at the end. */
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly profiles: string | undefined;
  /** Peers that take no part, and why. */
  readonly missing: Map<string, string>;
  readonly postern: Postern;
  /** Without one of its mechanisms, beside it: `--without`. */
  readonly ablated?: Postern;
  /** pgbench's tables are in its database; through Postern all peers' work is done in it, by others as a role that may do what it may. */
  readonly organization: TestOrganization;
}

export async function openBench(base: Omit<Bench, 'postern' | 'ablated' | 'organization'>): Promise<Bench> {
  const postern = await startPostern({ ...base, pool: base.options.pool });
  base.closing.defer(() => postern.child.end());
  const organization = await postern.signUp();
  await base.cluster.admit(organization.id);
  const bench = { ...base, postern, organization };
  await initialise(posternLogin(bench, postern), SCALE, bench.signal);
  return bench;
}

export function posternLogin({ organization }: Pick<Bench, 'organization'>, { wirePort }: Postern): WireLogin {
  return { host: '127.0.0.1', port: wirePort, user: organization.id, password: organization.apiKey, database: organization.id };
}

/** At whatever else listens on a port of this machine. */
export function benchLogin({ cluster, organization }: Pick<Bench, 'cluster' | 'organization'>, port: number): WireLogin {
  return { host: '127.0.0.1', port, user: BENCH_ROLE, password: cluster.password, database: organization.id };
}

/** Whether a peer takes part, as far as is known. */
export function isAskedFor({ options: { peers }, missing }: Bench, name: string): boolean {
  if (missing.has(name)) return false;
  return peers.length === 0 || peers.some((beginning) => name.toLowerCase().startsWith(beginning));
}
