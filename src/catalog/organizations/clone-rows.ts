import { ServiceError } from '../../errors.ts';
import type { Sql } from '../database/control-connection.ts';
import type { NewApiKey } from '../keys/api-key.ts';
import { countClone } from './hourly-limits.ts';
import type { Organization, Placement } from './organization.ts';
import { insertOrganization, lockOrganization, type NewOrganization, type OrganizationRow, toOrganization } from './organization-rows.ts';

/** How many clones an organization may have at once. */
export const CLONES_MAX = 5;

export interface NewClone {
  readonly id: string;
  readonly sourceId: string;
  readonly name: string;
  readonly placement: Placement;
  readonly key: NewApiKey;
  readonly expiresAt: Date;
  /** The longest time from now, in milliseconds, until it may expire. */
  readonly maxAgeMs: number;
}

/** An organization that is a copy of another one. */
export interface Clone {
  readonly organization: Organization;
  readonly sourceId: string;
  readonly expiresAt: Date;
}

type CloneRow = OrganizationRow & { readonly source_id: string; readonly expires_at: Date };

/**
 * Records a clone as an organization that is being provisioned, so that it is removed if this process ends.
 * @throws ServiceError `not_found`, `invalid_request`, `rate_limited`, `too_many_clones`
 */
export async function recordClone(
  sql: Sql,
  clone: NewClone,
  ownerProcess: number,
  now: Date,
): Promise<NewOrganization & { readonly source: Organization }> {
  const { id, sourceId, expiresAt, maxAgeMs } = clone;
  const source = await lockOrganization(sql, sourceId);
  await checkSource(sql, source);
  const [age] = await sql<{ isPast: boolean; isLate: boolean }[]>`
    select ${expiresAt}::timestamptz <= clock_timestamp() as "isPast",
      ${expiresAt}::timestamptz > clock_timestamp() + ${maxAgeMs}::float8 * interval '1 millisecond' as "isLate"`;
  if (age?.isPast) throw new ServiceError('invalid_request', 'expiresAt: must be in the future');
  if (age?.isLate) throw new ServiceError('invalid_request', `expiresAt: must be within ${maxAgeMs / 86_400_000} days`);
  await countClone(sql, sourceId, now);
  // Only sign-ups and changes of the address have to be unique.
  const created = await insertOrganization(sql, { ...clone, email: source.email }, ownerProcess, now, `clone ${id}`);
  if (created === undefined) throw new ServiceError('internal', 'there is a clone with this id');
  await sql`insert into postern.clones (organization_id, source_id, expires_at) values (${id}, ${sourceId}, ${expiresAt})`;
  return { ...created, source };
}

async function checkSource(sql: Sql, { id, status }: Organization): Promise<void> {
  if (status !== 'active') throw new ServiceError('invalid_request', `organization "${id}" is ${status}`);
  const [found] = await sql<{ isClone: boolean; clones: number }[]>`
    select exists (select from postern.clones where organization_id = ${id}) as "isClone",
      (select count(*)::int from postern.clones c join postern.organizations o on o.id = c.organization_id
       where c.source_id = ${id} and o.status <> 'dropped') as clones`;
  if (found?.isClone) throw new ServiceError('invalid_request', `organization "${id}" is a clone, which cannot be cloned`);
  if ((found?.clones ?? 0) >= CLONES_MAX) throw new ServiceError('too_many_clones', `an organization may have ${CLONES_MAX} clones`);
}

/** Those of an organization that have not been dropped, the oldest first. */
export async function listClones(sql: Sql, sourceId: string): Promise<Clone[]> {
  const rows = await sql<CloneRow[]>`
    select o.id, o.name, o.email, o.status, o.placement, o.created_at, c.source_id, c.expires_at
    from postern.clones c join postern.organizations o on o.id = c.organization_id
    where c.source_id = ${sourceId} and o.status <> 'dropped' order by o.created_at, o.id`;
  return rows.map(toClone);
}

/** Clones to be dropped: their time is over, or the organization that they were copied from is gone. */
export async function listExpiredClones(sql: Sql): Promise<Clone[]> {
  const rows = await sql<CloneRow[]>`
    select o.id, o.name, o.email, o.status, o.placement, o.created_at, c.source_id, c.expires_at
    from postern.clones c join postern.organizations o on o.id = c.organization_id
      left join postern.organizations source on source.id = c.source_id
    where o.status in ('active', 'suspended')
      and (c.expires_at <= clock_timestamp() or coalesce(source.status in ('dropping', 'dropped'), true))
    order by c.expires_at, o.id`;
  return rows.map(toClone);
}

export async function deleteClone(sql: Sql, id: string): Promise<void> {
  await sql`delete from postern.clones where organization_id = ${id}`;
}

function toClone(row: CloneRow): Clone {
  return { organization: toOrganization(row), sourceId: row.source_id, expiresAt: row.expires_at };
}
