import { createHash } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Bench, benchLogin, isAskedFor } from './bench.ts';
import { type Child, launch, waitFor } from './child.ts';
import { type Postern, startPostern } from './postern.ts';
import { pinToFirst } from './proc.ts';
import type { RouteTask } from './route-server.ts';

const ROUTE_SERVER = fileURLToPath(new URL('route-server.js', import.meta.url));
/** What suits two cores better than as many sessions as Postern may have. */
const SMALL_POOL = 4;

/** Answers `POST /api/query` with rows as JSON. */
export interface HttpPeer {
  readonly name: string;
  readonly url: string;
  readonly key: string;
  readonly child: Child;
}

const ROUTES = {
  'Fastify + pg': { driver: 'pg', named: false },
  'Fastify + postgres': { driver: 'postgres', named: false },
  'pg, named': { driver: 'pg', named: true },
  'pg, named, 4': { driver: 'pg', named: true, pool: SMALL_POOL },
  'postgres, 4': { driver: 'postgres', named: false, pool: SMALL_POOL },
} as const satisfies Record<string, { driver: RouteTask['driver']; named: boolean; pool?: number }>;

type RouteName = keyof typeof ROUTES;

/** The plain ones. */
export const PLAIN_ROUTES: readonly RouteName[] = ['Fastify + pg', 'Fastify + postgres'];
/** And those that somebody has spent a day on. */
export const TUNED_ROUTES: readonly RouteName[] = ['pg, named', 'pg, named, 4', 'postgres, 4'];

export function posternPeer({ organization }: Bench, { httpUrl, child }: Postern): HttpPeer {
  return { name: 'Postern', url: httpUrl, key: organization.apiKey, child };
}

export async function startPosternPeer(bench: Bench): Promise<HttpPeer> {
  const postern = await startPostern({ ...bench, pool: bench.options.pool });
  bench.closing.defer(() => postern.child.end());
  return posternPeer(bench, postern);
}

export function startRoutes(bench: Bench, names: readonly RouteName[]): Promise<HttpPeer[]> {
  return Promise.all(names.filter((name) => isAskedFor(bench, name)).map((name) => startRoute(bench, name)));
}

/** Like Postern, it reaches PostgreSQL through its Unix socket. */
async function startRoute(bench: Bench, name: RouteName): Promise<HttpPeer> {
  const { cluster, options, folder, closing, organization } = bench;
  const task: RouteTask = {
    pool: options.pool,
    ...ROUTES[name],
    keyDigest: createHash('sha256').update(organization.apiKey).digest('hex'),
    login: { ...benchLogin(bench, cluster.port), host: cluster.host },
  };
  const log = join(await mkdtemp(join(folder, 'route-')), 'log');
  const env = { PATH: process.env.PATH, NODE_ENV: 'production' };
  const child = launch({ command: process.execPath, args: [ROUTE_SERVER, JSON.stringify(task)], log, env });
  closing.defer(() => child.end());
  const port = await waitFor(child, async () => /"port":(\d+)/.exec(await child.output())?.[1]);
  if (options.pin) await pinToFirst(child.pid);
  return { name, url: `http://127.0.0.1:${port}`, key: organization.apiKey, child };
}
