import pg from 'pg';
import { rolePassword } from '../../../auth/role-password.ts';
import { BackendConnection } from '../../../backend/connection.ts';
import { runCommand } from '../../../backend/run-command.ts';
import type { Placement } from '../../../catalog/organizations/organization.ts';
import { ServiceError } from '../../../errors.ts';
import type { Observe } from '../../../observation.ts';
import { codeOf } from '../../../protocol/postgres-error.ts';
import { type SessionLimits, sessionOptions } from '../backend-startup-options.ts';
import type { Cluster } from '../cluster.ts';
import { asServiceError } from '../server/platform-sessions.ts';
import { isReaderRole, ownPlacement, resetSettings } from './reader-role.ts';

/** object_not_in_prerequisite_state, at a login: the database has ALLOW_CONNECTIONS false. */
const NOT_ACCEPTING_CONNECTIONS = '55000';

/** @returns whether anything was repaired */
export type Remedy = (placement: Placement) => Promise<boolean>;

export interface TenantLoginsOptions {
  readonly cluster: Cluster;
  readonly limits: SessionLimits;
  readonly observe: Observe;
  /** Repairs for logins that an organization has broken itself, by SQLSTATE. */
  readonly remedies: Readonly<Record<string, Remedy>>;
}

/** Opens sessions with organizations' own roles. A login that the tenant has broken is repaired. */
export class TenantLogins {
  readonly #options: TenantLoginsOptions;
  /** Repairs run one at a time for each organization, so that no organization can occupy several platform sessions. */
  readonly #healing = new Map<string, Promise<boolean>>();

  constructor(options: TenantLoginsOptions) {
    this.#options = options;
  }

  /**
   * @param furnish repairs the session's schema if need be, by commands in the session
   * @throws ServiceError `not_ready`, `too_many_connections`, or pg.DatabaseError
   */
  async open(
    placement: Placement,
    furnish: (backend: BackendConnection) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<BackendConnection> {
    signal?.throwIfAborted();
    const backend = await this.#loginAfresh(placement);
    try {
      await furnish(backend);
      signal?.throwIfAborted();
      return backend;
    } catch (error) {
      backend.destroy();
      throw error;
    }
  }

  /**
   * Repairs the cause of an error, if the organization has caused it.
   * @returns whether to try again
   */
  async heal(placement: Placement, error: unknown): Promise<boolean> {
    const remedy = this.#options.remedies[codeOf(error)];
    return remedy === undefined ? false : this.apply(placement, remedy);
  }

  async apply(placement: Placement, remedy: Remedy): Promise<boolean> {
    let healing = this.#healing.get(placement.role);
    if (healing === undefined) {
      healing = remedy(placement).finally(() => this.#healing.delete(placement.role));
      this.#healing.set(placement.role, healing);
    }
    const healed = await healing;
    if (healed) this.#options.observe({ name: 'backend.login_healed', organizationId: (ownPlacement(placement) ?? placement).role });
    return healed;
  }

  /** A login; a second one if a reader's has begun with settings of another key. */
  async #loginAfresh(placement: Placement): Promise<BackendConnection> {
    const backend = await this.#login(placement);
    if (!isReaderRole(placement.role)) return backend;
    try {
      if (!(await resetSettings(backend, placement, Object.keys(this.#options.cluster.roleSettings)))) return backend;
    } catch (error) {
      backend.destroy();
      throw error;
    }
    backend.end();
    return this.#login(placement);
  }

  async #login(placement: Placement): Promise<BackendConnection> {
    const { cluster, limits } = this.#options;
    const login = cluster.login({
      user: placement.role,
      password: rolePassword(cluster.secret, placement.role),
      database: placement.database,
      options: sessionOptions(placement, limits, cluster.serverVersion),
    });
    try {
      return await BackendConnection.open(login).catch(async (error: unknown) => {
        if (await this.heal(placement, error)) return BackendConnection.open(login);
        throw error;
      });
    } catch (error) {
      if (codeOf(error) !== NOT_ACCEPTING_CONNECTIONS) throw asServiceError(error);
      // It may have been closed by somebody else than a move.
      this.#options.observe({
        name: 'service.failure',
        message: `the database ${placement.database} accepts no connections`,
        cause: error,
      });
      throw movedAway(error);
    }
  }
}

/** A process has not been notified yet that the organization is moved, or it is being dropped. */
export function movedAway(cause?: unknown): ServiceError {
  return new ServiceError('not_ready', 'the organization is not served here any more', { cause, retryAfterS: 1 });
}

/** Whether the session's role may use a schema and create in it. */
export async function isUsable(backend: BackendConnection, schema: string): Promise<boolean> {
  const may = (right: string) => `pg_catalog.has_schema_privilege(oid, '${right}')`;
  const found = `SELECT FROM pg_catalog.pg_namespace WHERE nspname = ${pg.escapeLiteral(schema)} AND ${may('USAGE')} AND ${may('CREATE')}`;
  return (await runCommand(backend, found)) === 'SELECT 1';
}
