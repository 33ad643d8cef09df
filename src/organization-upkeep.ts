import { setTimeout as delay } from 'node:timers/promises';
import type { Catalog } from './catalog/catalog.ts';
import type { Config } from './config.ts';
import type { Observe, Origin } from './observation.ts';
import { readerOf } from './placement/reader-role.ts';
import { connectionLimitFor, limitConnections } from './placement/roles.ts';
import type { SignUps } from './router/accounts.ts';
import type { Clones, InterruptedMoves } from './router/moves.ts';
import type { Operator } from './router/operator.ts';
import type { ServedCluster } from './router/served-cluster.ts';

const SWEEP_MS = 60_000;
const FINISH_DROPS_MS = 5_000;
const UNDO_MOVES_MS = 2_000;

/** Sets the connection limit of existing organizations' roles, which may have been created with another setting. */
export async function limitRoles(config: Config, cluster: ServedCluster, catalog: Catalog, observe: Observe): Promise<void> {
  const limit = connectionLimitFor(config.POSTERN_BACKENDS_PER_TENANT);
  const limitAll = async () => {
    const roles = (await catalog.organizations.list())
      .filter(({ status, placement }) => status !== 'dropped' && placement.cluster === cluster.name)
      .flatMap(({ placement: { role } }) => [role, readerOf(role)]);
    return cluster.platform.run((session) => limitConnections(session, roles, limit));
  };
  const cause = await limitAll().catch((error: unknown) => error);
  if (cause !== undefined) observe({ name: 'service.warning', message: 'the connection limit could not be set for all roles', cause });
}

const ORIGIN: Origin = { surface: 'admin', sourceIp: '127.0.0.1' };

/**
 * Drops clones whose time is over and completes interrupted drops, at the start and then regularly: a drop may have to wait until
 * processes have ended.
 */
export async function finishDrops(operator: Operator, clones: Clones, observe: Observe, opened: (() => Promise<void>)[]): Promise<void> {
  const finish = () =>
    operator
      .finishDrops(ORIGIN, observe)
      .then(() => clones.dropExpired(ORIGIN))
      .catch((cause: unknown) => {
        observe({ name: 'service.failure', message: 'clones and interrupted drops could not be looked up', cause });
      });
  const first = repeat(finish, FINISH_DROPS_MS, opened);
  await Promise.race([first, delay(FINISH_DROPS_MS, undefined, { ref: false })]);
}

/** Undoes moves whose mover has ended, regularly. */
export function undoInterruptedMoves(moves: InterruptedMoves, observe: Observe, opened: (() => Promise<void>)[]): void {
  const undo = () =>
    moves.undo().catch((cause: unknown) => {
      observe({ name: 'service.failure', message: 'interrupted moves could not be looked up', cause });
    });
  void repeat(undo, UNDO_MOVES_MS, opened);
}

/** Does work now, and again some time after it is done, until the service closes. @returns when it is done for the first time */
function repeat(work: () => Promise<void>, everyMs: number, opened: (() => Promise<void>)[]): Promise<void> {
  const stop = new AbortController();
  const first = work();
  const repeating = async () => {
    await first;
    while (!stop.signal.aborted) {
      await delay(everyMs, undefined, { signal: stop.signal }).catch(() => {});
      if (!stop.signal.aborted) await work();
    }
  };
  const ended = repeating();
  opened.push(async () => {
    stop.abort();
    await ended;
  });
  return first;
}

/** Undoes interrupted sign-ups, at the start and then regularly: another process may have left some. */
export async function undoInterruptedSignUps(signUps: SignUps, observe: Observe, opened: (() => Promise<void>)[]): Promise<void> {
  await signUps.undoInterrupted();
  const timer = setInterval(() => {
    signUps.undoInterrupted().catch((cause: unknown) => {
      observe({ name: 'service.failure', message: 'interrupted sign-ups could not be looked up', cause });
    });
  }, SWEEP_MS);
  opened.push(async () => clearInterval(timer));
}
