import type { Origin } from '../observation.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import type { ControlPool } from './control-pool.ts';
import type { DiskState } from './limits.ts';
import { type ChangeOrganization, type Organization, type OrganizationRow, toOrganization } from './organization.ts';

const ACTIONS = {
  within: 'organization.within_quota',
  near: 'organization.near_quota',
  over: 'organization.over_quota',
  read_only: 'organization.over_quota',
} as const satisfies Readonly<Record<DiskState, string>>;

interface DiskQuotaRegistryOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  readonly change: ChangeOrganization;
}

/** Which organizations may have data of a limited size, and how near to that they are. */
export class DiskQuotaRegistry {
  readonly #options: DiskQuotaRegistryOptions;

  constructor(options: DiskQuotaRegistryOptions) {
    this.#options = options;
  }

  /**
   * Those that have a limit, and those that are not `within` one that they had.
   * @param usual the limit of those without one of their own; 0: none
   */
  async limited(usual: number): Promise<Organization[]> {
    const rows = await this.#options.database.run(
      (sql) => sql<OrganizationRow[]>`
      select id, name, email, status, placement, limits, disk_state, created_at from postern.organizations
      where status in ('active', 'suspended')
        and (disk_state <> 'within' or coalesce((limits->>'diskBytes')::bigint, ${usual}::bigint) > 0)`,
    );
    return rows.map(toOrganization);
  }

  /** Every process applies it at once. @returns false if the organization has it already, or is not in use any more @throws ServiceError `not_found` */
  setState(organizationId: string, state: DiskState, origin: Origin): Promise<boolean> {
    const { audit, change } = this.#options;
    return change(organizationId, async (sql, { status, diskState }) => {
      if (diskState === state || (status !== 'active' && status !== 'suspended')) return false;
      await sql`update postern.organizations set disk_state = ${state}, revision = revision + 1 where id = ${organizationId}`;
      await audit.appendWith(sql, { organizationId, action: ACTIONS[state], origin, outcome: DONE });
      return true;
    });
  }
}
