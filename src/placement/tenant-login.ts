import pg from 'pg';
import { rolePassword } from '../auth/derived-secrets.ts';
import { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { codeOf, textOf } from '../protocol/backend.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { asServiceError, type Platform, type SessionLimits, sessionOptions } from './cluster.ts';
import { isRestrictedRole, ownerOf, resetSettings } from './restricted-roles.ts';

/** object_not_in_prerequisite_state, at a login: the database has ALLOW_CONNECTIONS false. */
const NOT_ACCEPTING_CONNECTIONS = '55000';

/** @returns whether anything was repaired */
type Remedy = (placement: Placement) => Promise<boolean>;

/** What is taken away from an organization in a database. A database that has been restored may not have it. */
interface Protection {
  /** A SELECT that returns a row in a session whose database has it. */
  find(placement: Placement): string;
  /** Makes it so, as far as that is possible. Sessions may be running there. */
  restore(placement: Placement): Promise<void>;
}

/** How many databases a process remembers. One that is forgotten is asked again. */
const PROTECTED_MAX = 10_000;

interface TenantLoginsOptions {
  readonly platform: Platform;
  readonly protection: Protection;
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
  /** The oids of the databases that have been found protected. One that is restored under the same name has another. */
  readonly #protected = new BoundedMap<string, string>({ maxEntries: PROTECTED_MAX });
  readonly #protecting = new Map<string, Promise<void>>();
  /** The databases that have been warned about. */
  readonly #warned = new BoundedMap<string, true>({ maxEntries: PROTECTED_MAX });

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
      await this.#protect(backend, placement);
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
    if (healed) this.#options.observe({ name: 'backend.login_healed', organizationId: ownerOf(placement.role) });
    return healed;
  }

  /** The catalogs are asked once for each database, before the first session in it is lent. */
  async #protect(backend: BackendConnection, placement: Placement): Promise<void> {
    const { database } = placement;
    const { platform, protection } = this.#options;
    const oid = this.#protected.use(database);
    if (oid !== undefined && (await runCommand(backend, isDatabase(oid))) === 'SELECT 1') return;
    const find = async () => (await runCommand(backend, protection.find(placement))) === 'SELECT 1';
    if (!(await find())) {
      const cause = await this.#restoreProtection(placement).then(
        () => undefined,
        (error: unknown) => error,
      );
      const isProtected = await find();
      this.#warn(database, isProtected, cause);
      // A superuser can do it the next time.
      if (!isProtected && platform.cluster.superuser !== undefined) return;
    }
    const { rows } = await platform.run((session) =>
      session.query<{ oid: string }>('SELECT oid::text FROM pg_catalog.pg_database WHERE datname = $1', [database]),
    );
    if (rows[0] !== undefined) this.#protected.set(database, rows[0].oid);
  }

  #restoreProtection(placement: Placement): Promise<void> {
    const { database } = placement;
    let protecting = this.#protecting.get(database);
    if (protecting === undefined) {
      protecting = this.#options.protection.restore(placement).finally(() => this.#protecting.delete(database));
      this.#protecting.set(database, protecting);
    }
    return protecting;
  }

  #warn(database: string, isProtected: boolean, cause: unknown): void {
    if (this.#warned.get(database) && !isProtected) return;
    if (isProtected) this.#warned.delete(database);
    else this.#warned.set(database, true);
    const reason = cause === undefined ? 'it takes a superuser' : textOf(cause);
    const message = isProtected
      ? `the database ${database} was not hardened, as one that has been restored, and now it is`
      : `the database ${database} is not hardened, as one that has been restored, and cannot be hardened: ${reason}`;
    this.#options.observe({ name: 'service.warning', message, ...(cause === undefined ? {} : { cause }) });
  }

  /** A login; a second one if a restricted role's has begun with settings of another key. */
  async #loginAfresh(placement: Placement): Promise<BackendConnection> {
    const backend = await this.#login(placement);
    if (!isRestrictedRole(placement.role)) return backend;
    try {
      if (!(await resetSettings(backend, placement, Object.keys(this.#options.platform.cluster.roleSettings)))) return backend;
    } catch (error) {
      backend.destroy();
      throw error;
    }
    backend.end();
    return this.#login(placement);
  }

  async #login(placement: Placement): Promise<BackendConnection> {
    const { cluster } = this.#options.platform;
    const { limits } = this.#options;
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

function isDatabase(oid: string): string {
  return `SELECT FROM pg_catalog.pg_database WHERE oid = ${oid} AND datname = pg_catalog.current_database()`;
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
