import { openTenantSession } from '../../../copies/tenant-session.ts';
import { ServiceError } from '../../../errors.ts';
import { removeReplication } from '../../../placement/replication-objects.ts';
import { textOf } from '../../../protocol/backend.ts';
import type { ServedPlacement } from '../../../router/served-cluster.ts';
import { ReplicatedCopy } from './replicated-copy.ts';
import { warningOf, whyNotReplicated } from './server-requirements.ts';

/** A smaller database is copied in the pause, which is over as soon as the short pauses of a replicated copy are. */
const LARGE_BYTES = 64 * 1024 * 1024;

export interface OpenedCopy {
  readonly copy?: ReplicatedCopy;
  /** Why there is none, although the organization is large. */
  readonly obstacle?: string;
}

/** Tells the operator something before the work goes on. */
export type Warn = (message: string) => void;

/**
 * Begins a copy that follows the changes, if the organization is large and the servers allow it.
 * @param isWanted not only for a large one
 * @throws ServiceError `invalid_request` if it is wanted and not possible
 */
export async function openReplicatedCopy(from: ServedPlacement, to: ServedPlacement, isWanted: boolean, warn: Warn): Promise<OpenedCopy> {
  if (!isWanted && (await sizeOf(from)) < LARGE_BYTES) return {};
  const obstacle = whyNotBetween(from, to) ?? (await whyNotReplicated(from.server, to.server));
  const warning = obstacle === undefined ? await warningOf(from.server) : undefined;
  if (warning !== undefined) warn(warning);
  const opened = obstacle === undefined ? await tryToOpen(from, to) : { obstacle };
  if (isWanted && opened.obstacle !== undefined) throw new ServiceError('invalid_request', `it cannot be replicated: ${opened.obstacle}`);
  return opened;
}

async function tryToOpen(from: ServedPlacement, to: ServedPlacement): Promise<OpenedCopy> {
  try {
    return { copy: await ReplicatedCopy.open(from, to) };
  } catch (error) {
    for (const { server, placement } of [to, from]) await removeReplication(server.platform, placement);
    return { obstacle: textOf(error) };
  }
}

function whyNotBetween({ placement: from }: ServedPlacement, { placement: to }: ServedPlacement): string | undefined {
  if (from.kind !== 'database' || to.kind !== 'database') return 'only from a database of its own to another one';
  return from.cluster === to.cluster ? 'only to another server' : undefined;
}

async function sizeOf({ server, placement }: ServedPlacement): Promise<number> {
  // In the shared database this would be the size of all schemas.
  if (placement.kind !== 'database') return 0;
  const session = await openTenantSession(server, placement);
  try {
    const { rows } = await session.client.query<{ size: string }>(
      'SELECT pg_catalog.pg_database_size(pg_catalog.current_database())::text AS size',
    );
    return Number(rows[0]?.size);
  } finally {
    await session.end();
  }
}
