import { userInfo } from 'node:os';
import { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config.ts';
import { DiskSpace } from '../embedded/disk-space.ts';
import { findPostgres } from '../embedded/embedded.ts';
import { Mover } from '../moving/mover.ts';
import { SchemaCopies } from '../moving/schema-copies.ts';
import type { Origin } from '../observation.ts';
import { controlConnection } from '../placement/cluster.ts';
import { clusterOptions, findCluster } from '../placement/cluster-setup.ts';
import { SignUps } from '../router/accounts.ts';
import { Clusters, NewPlacements } from '../router/clusters.ts';
import { Clones } from '../router/moves.ts';
import { Operator } from '../router/operator.ts';
import { CitusAdministration } from './citus.ts';
import { ClusterAdministration } from './clusters.ts';

export interface OperatorSession {
  readonly operator: Operator;
  /** Without the limits of sign-ups over HTTP. */
  readonly signUps: SignUps;
  readonly clusters: ClusterAdministration;
  readonly citus: CitusAdministration;
  readonly clones: Clones;
  readonly mover: Mover;
  /** The operator, by the machine's user name. */
  readonly origin: Origin;
  close(): Promise<void>;
}

const WAIT_MS = 5_000;

/**
 * Opens what operators need, without the doors, on the control database and PostgreSQL of a service with the same configuration.
 * @throws EmbeddedError, ClusterError
 */
export async function openOperator(config: Config): Promise<OperatorSession> {
  const observe = () => {};
  const { admin, secret, folder } = await findPostgres(config);
  const disk = folder === undefined ? undefined : new DiskSpace(folder);
  const shared = { secret, ...clusterOptions(config, observe) };
  const first = await findCluster({ admin, ...shared, waitMs: WAIT_MS });
  const catalog = await Catalog.open({ connection: controlConnection(first), observe, auditDays: config.POSTERN_AUDIT_DAYS });
  const find = (name: string, url: string) => findCluster({ name, admin: url, ...shared, waitMs: 0 });
  const clusters = new Clusters({ first, prepare: find, config, catalog, observe, workers: 1 });
  await clusters.refresh();
  const placements = new NewPlacements(clusters, catalog.clusters, config.POSTERN_PLACEMENT);
  const operator = new Operator(catalog, clusters);
  const signUps = new SignUps({ catalog, clusters, placements, mode: 'open', signupsPerHour: undefined, observe });
  return {
    operator,
    signUps,
    clones: new Clones({ catalog, clusters, signUps, operator, schemas: new SchemaCopies(), observe, disk }),
    citus: new CitusAdministration({ catalog, first, url: config.DATABASE_URL, shared }),
    clusters: new ClusterAdministration(catalog.clusters, first, shared),
    mover: new Mover(catalog, clusters, warn, disk),
    origin: { surface: 'admin', sourceIp: '127.0.0.1', userAgent: `postern-admin (${userName()})` },
    async close() {
      await clusters.close();
      await catalog.close();
    },
  };
}

function warn(message: string): void {
  process.stderr.write(`postern: warning: ${message}\n`);
}

/** A container may run as a uid without a user name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.());
  }
}
