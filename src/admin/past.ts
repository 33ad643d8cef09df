import { stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { archiveOf, backedUpServer, dataBytesOf } from '../backups/backups.ts';
import { BackupError } from '../backups/base-backup.ts';
import { pastFolder, pastName, pastUrlFile, withPast } from '../backups/past.ts';
import type { Placement } from '../catalog/organization.ts';
import { type Config, readSecret } from '../config.ts';
import { findPostgres } from '../embedded/embedded.ts';
import { ServiceError } from '../errors.ts';
import { type AdminLogin, parseUrl, waitForServer, withSession } from '../placement/admin-connection.ts';
import type { Clones } from '../router/moves.ts';
import { openOperator } from './operations.ts';

interface PastRequest {
  readonly id: string;
  readonly time: Date;
  readonly expiresAt: Date;
  readonly name: string | undefined;
}

export interface PastClone extends Awaited<ReturnType<Clones['create']>> {
  /** The archive ends before the time: it is of its end. */
  readonly isAtEnd: boolean;
}

const START_TIMEOUT_MS = 300_000;
const POLL_MS = 100;

/**
 * Makes a clone of an organization as it was at a time: on a restored server beside, which the running service starts. Nothing waits for it.
 * @throws BackupError, EmbeddedError, ClusterError, ServiceError
 */
export async function cloneOfPast(config: Config, { id, time, expiresAt, name }: PastRequest): Promise<PastClone> {
  const { POSTERN_BACKUP_DIR: dir, POSTERN_CONTROL_DATABASE: controlDatabase, POSTERN_POSTGRES_BIN: programs } = config;
  if (dir === undefined) throw new BackupError('POSTERN_BACKUP_DIR is not set: there are no backups');
  const server = backedUpServer(await findPostgres(config), config);
  if (server === undefined) throw new BackupError('only the embedded server is backed up by Postern');
  const session = await openOperator(config);
  try {
    // Before anything is restored.
    const { createdAt, placement } = await session.operator.organization(id);
    if (createdAt > time) throw absentThen(id, time);
    if (placement.kind === 'schema') await session.checkSchemaCopies();
    const folder = pastFolder(server.folder);
    const cluster = pastName(time);
    const file = pastUrlFile(folder, cluster);
    const archive = await archiveOf(server, dir);
    const dataBytes = await withSession(server.login, dataBytesOf);
    return await withPast({ folder, archive, time, dataBytes, programs }, async (isAtEnd) => {
      await untilStarted(file);
      const login = parseUrl(readSecret(`file:${file}`));
      await waitForServer(login, START_TIMEOUT_MS);
      const from = await placementThen({ ...login, database: controlDatabase }, id, time);
      await session.clusters.addPast(cluster, `file:${file}`);
      const beside = await openOperator(config);
      try {
        const source = await beside.operator.organization(id);
        const made = await beside.clones.create({ source, name, expiresAt, from: { ...from, cluster } }, beside.origin);
        return { ...made, isAtEnd };
      } finally {
        await beside.close();
      }
    });
  } finally {
    await session.close();
  }
}

/** The service starts it within seconds. */
async function untilStarted(file: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (!(await stat(file).catch(() => undefined))) {
    if (performance.now() > deadline) throw new BackupError('the service has not started the restored server: its log says why');
    await delay(POLL_MS);
  }
}

/** Where the organization lived. @throws ServiceError `not_found`, `invalid_request` */
async function placementThen(login: AdminLogin, id: string, time: Date): Promise<Placement> {
  const { rows } = await withSession(login, (session) =>
    session.query<{ status: string; placement: Placement; moves: boolean }>(
      `SELECT status, placement, EXISTS (SELECT FROM postern.moves WHERE organization_id = id AND NOT has_switched) AS moves
       FROM postern.organizations WHERE id = $1`,
      [id],
    ),
  );
  const [then] = rows;
  if (then === undefined || !['active', 'suspended'].includes(then.status)) {
    throw absentThen(id, time);
  }
  if (then.moves) throw new ServiceError('invalid_request', `organization "${id}" was being moved at ${time.toISOString()}`);
  if (then.placement.cluster !== 'default') {
    throw new ServiceError('invalid_request', `organization "${id}" lived in cluster "${then.placement.cluster}" at ${time.toISOString()}`);
  }
  return then.placement;
}

function absentThen(id: string, time: Date): ServiceError {
  return new ServiceError('not_found', `there was no organization "${id}" at ${time.toISOString()}`);
}
