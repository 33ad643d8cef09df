import { ServiceError } from '../errors.ts';
import type { Actor, Origin } from '../observation.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import type { ControlPool } from './control-pool.ts';
import { type ApiKey, deleteKeys } from './key-rows.ts';
import { type OrganizationLimits, storeLimits } from './limits.ts';
import { deleteMove } from './moves.ts';
import {
  type ChangeOrganization,
  checkChange,
  emailTaken,
  findOrganization,
  listOrganizations,
  lockOrganization,
  type Organization,
  type OrganizationStatus,
  type ProfileChanges,
  updateProfile,
  updateStatus,
} from './organization.ts';
import { deleteStatistics } from './query-statistics.ts';
import { deleteQueries } from './saved-queries.ts';
import { type Clone, countEmailChange, countNameChange, deleteClone, listClones, listExpiredClones } from './sign-ups.ts';
import { deleteUsage } from './usage.ts';

/** Who changes something: an organization, by one of its keys. */
interface Caller {
  readonly organization: Pick<Organization, 'id'>;
  readonly key: Pick<ApiKey, 'id' | 'prefix'>;
}

interface OrganizationRegistryOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  readonly now: () => Date;
  readonly change: ChangeOrganization;
}

/** The organizations in the control database: reading them, their profiles and their status. */
export class OrganizationRegistry {
  readonly #options: OrganizationRegistryOptions;

  constructor(options: OrganizationRegistryOptions) {
    this.#options = options;
  }

  /** In the order of their creation. */
  list(filter: { readonly status?: OrganizationStatus } = {}): Promise<Organization[]> {
    return this.#options.database.run((sql) => listOrganizations(sql, filter.status));
  }

  find(id: string): Promise<Organization | undefined> {
    return this.#options.database.readFor(id, (sql) => findOrganization(sql, id));
  }

  /** The ids of those that are paused, by whom or what ever. */
  async paused(): Promise<ReadonlySet<string>> {
    const rows = await this.#options.database.run(
      (sql) => sql<{ id: string }[]>`
      select id from postern.organizations where paused_until > clock_timestamp()`,
    );
    return new Set(rows.map(({ id }) => id));
  }

  /** The clones of an organization that have not been dropped, the oldest first. */
  clones(sourceId: string): Promise<Clone[]> {
    return this.#options.database.readFor(sourceId, (sql) => listClones(sql, sourceId));
  }

  /** The clones whose time is over, and those of organizations that are gone. */
  expiredClones(): Promise<Clone[]> {
    return this.#options.database.run((sql) => listExpiredClones(sql));
  }

  /**
   * Changes the name or the e-mail address of the caller's organization.
   * @throws ServiceError `email_taken`, `rate_limited`
   */
  async updateProfile({ organization: { id }, key }: Caller, changes: ProfileChanges, origin: Origin): Promise<Organization> {
    const { database, audit, now } = this.#options;
    const changed = await database
      .changeFor(id, async (sql) => {
        const before = await lockOrganization(sql, id);
        if (changes.name !== undefined) await countNameChange(sql, id, now());
        if (changes.email !== undefined && changes.email !== before.email) await countEmailChange(sql, id, now());
        const after = await updateProfile(sql, id, changes);
        if (after === undefined) return undefined;
        const actor = { keyId: key.id, keyPrefix: key.prefix };
        await audit.appendWith(sql, { organizationId: id, action: 'organization.updated', origin, actor, outcome: DONE });
        return after;
      })
      .catch((error: unknown) => {
        // Another organization has taken the address since this one looked.
        throw isUniqueViolation(error) ? emailTaken() : error;
      });
    if (changed === undefined) throw emailTaken();
    return changed;
  }

  /** Changes the name of an organization, for operators. @throws ServiceError `not_found` */
  rename(organizationId: string, name: string, origin: Origin): Promise<Organization> {
    const { audit, change } = this.#options;
    return change(organizationId, async (sql, organization) => {
      await updateProfile(sql, organizationId, { name });
      await audit.appendWith(sql, { organizationId, action: 'organization.updated', origin, outcome: DONE });
      return { ...organization, name };
    });
  }

  /**
   * Changes some of an organization's limits. Every process applies them at once, to those who are logged in already too.
   * @throws ServiceError `not_found`; `invalid_request` for one that is being dropped
   */
  setLimits(organizationId: string, changes: Partial<OrganizationLimits>, origin: Origin): Promise<Organization> {
    const { audit, change } = this.#options;
    return change(organizationId, async (sql, organization) => {
      const { status } = organization;
      if (status === 'dropping' || status === 'dropped') {
        throw new ServiceError('invalid_request', `organization "${organizationId}" is ${status}`);
      }
      const limited = { ...organization, limits: { ...organization.limits, ...changes } };
      await storeLimits(sql, limited);
      await audit.appendWith(sql, { organizationId, action: 'organization.limits', origin, outcome: DONE });
      return limited;
    });
  }

  /**
   * When an organization stops being `active`, its sessions end in every process. When it is `dropped`, its keys are
   * deleted, its saved queries too, and its e-mail address may be used again; its audit log stays.
   * @throws ServiceError `not_found`; `invalid_request` when the status cannot change this way
   */
  setStatus(
    organizationId: string,
    status: OrganizationStatus,
    origin: Origin,
    actor?: Omit<Actor, 'organizationId'>,
  ): Promise<Organization> {
    const { audit, change } = this.#options;
    return change(organizationId, async (sql, organization) => {
      if (organization.status === status) return organization;
      checkChange(organization, status);
      await updateStatus(sql, organizationId, status);
      if (status === 'dropped') {
        await Promise.all(
          [deleteKeys, deleteQueries, deleteUsage, deleteStatistics, deleteClone, deleteMove].map((deleteAll) =>
            deleteAll(sql, organizationId),
          ),
        );
      }
      await audit.appendWith(sql, { organizationId, action: `organization.${status}`, origin, actor, outcome: DONE });
      return { ...organization, status };
    });
  }
}

function isUniqueViolation(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23505';
}
