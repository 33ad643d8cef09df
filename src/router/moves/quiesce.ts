import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Organization } from '../../catalog/organization.ts';
import type { Pause } from '../../catalog/pauses.ts';
import { ServiceError } from '../../errors.ts';
import { describeProcesses } from '../../placement/roles.ts';
import type { ServedCluster } from '../clusters/served-cluster.ts';

/** How long the processes of the service may take to notice a pause, and transactions to end. */
export const QUIET_WITHIN_MS = 5_000;
const POLL_MS = 20;

export interface QuietOptions {
  readonly catalog: Pick<Catalog, 'pauses'>;
  /** Where the organization lives. */
  readonly cluster: ServedCluster;
  /** The pause ends by itself after this time. */
  readonly limitMs: number;
  /** Whether sessions that do not end are terminated. Otherwise the work is refused because of them. */
  readonly force: boolean;
  /** Names the pause; undefined: a random name. */
  readonly token?: string;
}

/**
 * Runs `work` while an organization has no sessions, because it is paused. Its clients wait meanwhile.
 * @throws ServiceError `organization_busy` if sessions do not end, and what `work` throws
 */
export async function whileQuiet<Result>(
  { id, placement }: Pick<Organization, 'id' | 'placement'>,
  { catalog, cluster, limitMs, force, token = randomBytes(16).toString('hex') }: QuietOptions,
  work: (pause: Pause) => Promise<Result>,
): Promise<Result> {
  const pause = { organizationId: id, token };
  await catalog.pauses.begin(pause, limitMs);
  try {
    const isQuiet = await waitForQuiet(cluster, placement);
    if (!isQuiet && !force) throw await stillInUse(cluster, placement);
    if (!isQuiet) await terminate(cluster, placement);
    return await work(pause);
  } finally {
    await catalog.pauses.end(pause);
  }
}

async function waitForQuiet(cluster: ServedCluster, placement: Organization['placement']): Promise<boolean> {
  const deadline = performance.now() + QUIET_WITHIN_MS;
  while ((await cluster.provisioning((provisioner) => provisioner.countSessions(placement))).all > 0) {
    if (performance.now() > deadline) return false;
    await delay(POLL_MS);
  }
  return true;
}

/** A session that is at work has a transaction open; an idle one belongs to a client that is pinned to it. */
async function stillInUse(cluster: ServedCluster, placement: Organization['placement']): Promise<ServiceError> {
  const { all, atWork } = await cluster.provisioning((provisioner) => provisioner.countSessions(placement));
  return new ServiceError('organization_busy', `sessions have not ended: ${atWork} in a transaction, ${all - atWork} pinned`, {
    hint: 'GET /api/sessions shows what they run and why they are pinned, and DELETE /api/sessions/{sessionId} ends one.',
    retryAfterS: 5,
  });
}

async function terminate(cluster: ServedCluster, placement: Organization['placement']): Promise<void> {
  const running = await cluster.provisioning((provisioner) => provisioner.terminateSessions(placement));
  if (running.length === 0) return;
  throw new ServiceError('organization_busy', `sessions do not end when they are terminated: ${describeProcesses(running)}`);
}
