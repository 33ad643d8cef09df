import { ServiceError } from '../errors.ts';
import type { Sql } from './control-pool.ts';
import type { ChangeOrganization, Organization } from './organization.ts';

/** The time that a pause lasts which somebody has to end. No timer can wait for longer. */
export const UNTIL_ENDED_MS = 2 ** 31 - 1;

/**
 * How long the pause of an organization `o` still lasts, in milliseconds by the control server's clock; null: it is not paused.
 * At most {@link UNTIL_ENDED_MS}.
 */
export function pausedForMs(sql: Sql): ReturnType<Sql> {
  return sql`case when o.paused_until = 'infinity' then ${UNTIL_ENDED_MS}::int when o.paused_until > clock_timestamp() then
    least(${UNTIL_ENDED_MS}, ceil(1000 * extract(epoch from o.paused_until - clock_timestamp())))::int end`;
}

/** A pause of an organization. It ends by itself, so that no process has to be alive for that, or lasts until it is ended. */
export interface Pause {
  readonly organizationId: string;
  /** Random: whoever knows it may end the pause. */
  readonly token: string;
}

/** Pauses of organizations. While one is paused, no process lends a backend of it: clients wait. */
export class PauseRegistry {
  readonly #change: ChangeOrganization;

  constructor(change: ChangeOrganization) {
    this.#change = change;
  }

  /**
   * Begins a pause that ends by itself after `forMs`, unless that is {@link UNTIL_ENDED_MS}.
   * @throws ServiceError `not_found`, `invalid_request` if it is not in use, `organization_busy` if it is paused by somebody else
   */
  begin({ organizationId, token }: Pause, forMs: number): Promise<Organization> {
    return this.#change(organizationId, async (sql, organization) => {
      if (organization.status !== 'active' && organization.status !== 'suspended') {
        throw new ServiceError('invalid_request', `organization "${organizationId}" is ${organization.status}`);
      }
      const paused = await sql`
        update postern.organizations
        set paused_by = ${token}, revision = revision + 1, paused_until = case when ${forMs}::int = ${UNTIL_ENDED_MS}::int then 'infinity'
          else clock_timestamp() + ${forMs}::int * interval '1 millisecond' end
        where id = ${organizationId} and coalesce(paused_until <= clock_timestamp(), true) returning id`;
      if (paused.length > 0) return organization;
      const [by] = await sql<{ token: string }[]>`select paused_by as token from postern.organizations where id = ${organizationId}`;
      throw busy(organizationId, by?.token === OPERATOR_PAUSE);
    });
  }

  /** @throws ServiceError `not_found` */
  isInForce({ organizationId, token }: Pause): Promise<boolean> {
    return this.#change(organizationId, async (sql) => {
      const found = await sql`
        select from postern.organizations where id = ${organizationId} and paused_by = ${token} and paused_until > clock_timestamp()`;
      return found.length > 0;
    });
  }

  /** Ends the pause. @returns false if it has ended by itself, or another has taken its place */
  end({ organizationId, token }: Pause): Promise<boolean> {
    return this.#change(organizationId, async (sql) => {
      const ended = await sql`
        update postern.organizations set paused_by = null, paused_until = null, revision = revision + 1
        where id = ${organizationId} and paused_by = ${token} returning paused_until > clock_timestamp()`;
      return ended.length > 0;
    });
  }
}

/**
 * Checks that the pause has not ended. The caller has locked the organization, so nobody else can pause it before the transaction ends.
 * @throws ServiceError `organization_busy`
 */
export async function lockPause(sql: Sql, { organizationId, token }: Pause): Promise<void> {
  const [found] = await sql`
    select from postern.organizations
    where id = ${organizationId} and paused_by = ${token} and paused_until > clock_timestamp()`;
  if (found === undefined) throw new ServiceError('organization_busy', `the pause of organization "${organizationId}" has ended too early`);
}

/** The token of operators' pauses. */
export const OPERATOR_PAUSE = 'operator';

function busy(organizationId: string, isByOperator: boolean): ServiceError {
  if (isByOperator) {
    return new ServiceError('organization_busy', `organization "${organizationId}" is paused by an operator`, {
      hint: 'RESUME at the console for operators ends the pause.',
    });
  }
  return new ServiceError('organization_busy', `organization "${organizationId}" is being cloned or moved`, { retryAfterS: 5 });
}
