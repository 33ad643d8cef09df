import { userInfo } from 'node:os';
import { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config.ts';
import { findRunningServer } from '../embedded/running-server.ts';
import type { Origin } from '../observation.ts';
import { Operator } from '../router/operator.ts';
import { type Cluster, findCluster } from '../router/placement/cluster.ts';
import { Platform } from '../router/placement/platform-sessions.ts';
import { ProvisionerByKind } from '../router/placement/provisioner-by-kind.ts';
import { connectionLimitFor } from '../router/placement/roles/roles.ts';
import { SignUps, type SignUpsOptions } from '../router/sign-ups/sign-ups.ts';

export interface OperatorSession {
  readonly operator: Operator;
  /** Without the limits of sign-ups over HTTP. */
  readonly signUps: SignUps;
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
  const cluster = await runningPostgres(config);
  const { host, port, ssl, controlDatabase } = cluster;
  const connection = { host, port, ...cluster.platform, database: controlDatabase, ...(ssl === undefined ? {} : { ssl }) };
  const observe = () => {};
  const catalog = await Catalog.open({ connection, observe, auditDays: config.POSTERN_AUDIT_DAYS });
  const platform = new Platform(cluster);
  const connectionLimit = connectionLimitFor(config.POSTERN_BACKENDS_PER_TENANT);
  const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
  const provisioner = new ProvisionerByKind({ platform, connectionLimit, limits, observe }, config.POSTERN_PLACEMENT);
  // The lock table is freed by the service, which has the sessions that fill it.
  const locks: SignUpsOptions['locks'] = { retryWhenFull: (work) => work() };
  return {
    operator: new Operator(catalog, provisioner),
    signUps: new SignUps({ catalog, provisioner, locks, mode: 'open', signupsPerHour: undefined, observe }),
    origin: { surface: 'admin', sourceIp: '127.0.0.1', userAgent: `postern-admin (${userName()})` },
    async close() {
      await Promise.all([platform.close(), catalog.close()]);
    },
  };
}

async function runningPostgres(config: Config): Promise<Cluster> {
  const options = { controlDatabase: config.POSTERN_CONTROL_DATABASE, observe: () => {}, waitMs: WAIT_MS };
  const { DATABASE_URL: admin, POSTERN_SECRET: secret } = config;
  if (admin !== undefined && secret !== undefined) return findCluster({ admin, secret, ...options });
  const running = await findRunningServer(config.POSTERN_DATA_DIR, secret);
  const { host, port, superuser } = running;
  return findCluster({ admin: { host, port, ...superuser }, secret: running.secret, ...options });
}

/** A container may run as a uid without a user name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.());
  }
}
