import type { Catalog } from '../../catalog/catalog.ts';
import type { InterruptedMove } from '../../catalog/moves.ts';
import type { Placement } from '../../catalog/organization.ts';
import type { Observe } from '../../observation.ts';
import { removeReplication } from '../../placement/replication-objects.ts';
import type { Clusters } from '../clusters/clusters.ts';

/** The application_name of a mover's sessions with an organization's own role. */
export const MOVER_NAME = 'postern move';

/** How long a mover may be without its connection to the control database, which it opens again within a few seconds. */
const LOST_MS = 10_000;

/** The move of an organization that is to be undone. */
export interface UndoneMove {
  readonly organizationId: string;
  /** Undefined: any that has not switched. */
  readonly token?: string;
  /** Where the caller has begun to make a copy, although its move may have been undone meanwhile. */
  readonly made?: Placement;
}

/**
 * Undoes a move: it cannot switch any more, the pause and the sessions of its mover end, and the copy is removed. May be repeated.
 * @returns false if there is no such move, or it has switched
 * @throws ServiceError `not_found`; ClusterDownError, StillRunningError: what is left is removed by the service
 */
export async function undoMove(catalog: Catalog, clusters: Clusters, { organizationId, token, made }: UndoneMove): Promise<boolean> {
  const aborted = await catalog.moves.abort(organizationId, token, made);
  if (aborted === undefined) return false;
  const { copy, kept } = aborted;
  const source = await clusters.ready(kept.cluster);
  await source.provisioning((provisioner) => provisioner.reopen(kept));
  await catalog.pauses.end(aborted);
  // They may hold locks on the organization's tables, and the mover may be on a machine that does not run any more.
  await source.provisioning((provisioner) => provisioner.terminateNamed(kept, MOVER_NAME));
  await clusters.removeCopy(copy, kept);
  await catalog.moves.forget(aborted);
  return true;
}

export interface InterruptedMovesOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly observe: Observe;
}

/** Moves whose mover has ended before the switch. */
export class InterruptedMoves {
  readonly #options: InterruptedMovesOptions;
  /** When each of them was first found, by its token, in milliseconds of `performance.now()`. */
  #found: ReadonlyMap<string, number> = new Map();

  constructor(options: InterruptedMovesOptions) {
    this.#options = options;
  }

  /** Undoes those that have been found for a while. Several processes may do it at the same time; each move is undone by one of them. */
  async undo(): Promise<void> {
    const interrupted = await this.#options.catalog.moves.interrupted();
    const now = performance.now();
    this.#found = new Map(interrupted.map(({ token }) => [token, this.#found.get(token) ?? now]));
    for (const move of interrupted) if (now - (this.#found.get(move.token) ?? now) >= LOST_MS) await this.#undo(move);
  }

  async #undo({ organizationId, token, copy, kept, isOwn }: InterruptedMove): Promise<void> {
    const { catalog, clusters, observe } = this.#options;
    try {
      // It cannot switch any more; the rest has to wait until the servers answer, except for what makes one of them keep WAL.
      if (isOwn && ![copy, kept].every(({ cluster }) => clusters.up.has(cluster))) {
        const source = clusters.up.get(kept.cluster);
        if (source !== undefined && copy.cluster !== kept.cluster) await removeReplication(source.platform, kept);
        return;
      }
      if (!(await undoMove(catalog, clusters, { organizationId, token }))) return;
      observe({ name: 'service.warning', message: `an interrupted move of organization ${organizationId} has been undone` });
    } catch (cause) {
      observe({ name: 'service.failure', message: `an interrupted move of organization ${organizationId} could not be undone yet`, cause });
    }
  }
}
