import { ServiceError } from '../../errors.ts';
import { startChain } from '../audit/blocks/append.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ApiKey, NewApiKey } from '../keys/api-key.ts';
import { FIRST_KEY, insertKey } from '../keys/key-rows.ts';
import { emailKey } from './email-address.ts';
import type { Organization, OrganizationStatus, Placement } from './organization.ts';

export interface OrganizationRow {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly status: OrganizationStatus;
  readonly placement: Placement;
  readonly created_at: Date;
}

export function toOrganization({ id, name, email, status, placement, created_at }: OrganizationRow): Organization {
  return { id, name, email, status, createdAt: created_at, placement };
}

/** The status changes that an operator can make. An organization that is being signed up has none. */
const NEXT: Readonly<Record<OrganizationStatus, readonly OrganizationStatus[]>> = {
  provisioning: [],
  active: ['suspended', 'dropping'],
  suspended: ['active', 'dropping'],
  dropping: ['dropped'],
  dropped: [],
};

/** @throws ServiceError `invalid_request` */
export function checkChange({ id, status }: Organization, next: OrganizationStatus): void {
  if (NEXT[status].includes(next)) return;
  throw new ServiceError('invalid_request', `organization "${id}" is ${status} and cannot become ${next}`);
}

/** In the order of their creation. */
export async function listOrganizations(sql: Sql, status?: OrganizationStatus): Promise<Organization[]> {
  const rows = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, created_at
    from postern.organizations
    ${status === undefined ? sql`` : sql`where status = ${status}`}
    order by created_at, id`;
  return rows.map(toOrganization);
}

export async function findOrganization(sql: Sql, id: string): Promise<Organization | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, created_at from postern.organizations where id = ${id}`;
  return row && toOrganization(row);
}

export interface NewOrganization {
  readonly organization: Organization;
  readonly key: ApiKey;
}

/**
 * Inserts an organization that is being provisioned, with its first key and an empty audit chain.
 * @param uniqueName what no other organization may have: its e-mail address
 * @returns undefined when another one has it; upper and lower case count as the same
 */
export async function insertOrganization(
  sql: Sql,
  { id, name, email, placement, key }: Pick<Organization, 'id' | 'name' | 'email' | 'placement'> & { readonly key: NewApiKey },
  ownerProcess: number,
  now: Date,
  uniqueName = emailKey(email),
): Promise<NewOrganization | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
    values (
      ${id}, ${name}, ${email}, ${uniqueName}, 'provisioning', ${ownerProcess}, ${JSON.stringify(placement)}::text::jsonb, ${now})
    on conflict (email_key) where status <> 'dropped' do nothing
    returning id, name, email, status, placement, created_at`;
  if (row === undefined) return undefined;
  await startChain(sql, id);
  return { organization: toOrganization(row), key: await insertKey(sql, id, key, FIRST_KEY, { at: now }) };
}

/**
 * Locks the organization against other changes until the transaction ends.
 * @throws ServiceError `not_found`
 */
export async function lockOrganization(sql: Sql, id: string): Promise<Organization> {
  const [row] = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, created_at from postern.organizations where id = ${id} for update`;
  if (row === undefined) throw noOrganization(id);
  return toOrganization(row);
}

/** Runs work on a locked organization in one transaction, and notifies every process when it is committed. */
export type ChangeOrganization = <T>(organizationId: string, work: (sql: Sql, organization: Organization) => Promise<T>) => Promise<T>;

export interface ProfileChanges {
  readonly name?: string;
  readonly email?: string;
}

/** @returns undefined when the e-mail address is taken */
export async function updateProfile(sql: Sql, id: string, { name, email }: ProfileChanges): Promise<Organization | undefined> {
  const key = email === undefined ? null : emailKey(email);
  const [row] = await sql<OrganizationRow[]>`
    update postern.organizations
    set name = coalesce(${name ?? null}, name), email = coalesce(${email ?? null}, email), email_key = coalesce(${key}, email_key)
    where id = ${id} and not exists (select from postern.organizations where email_key = ${key} and status <> 'dropped' and id <> ${id})
    returning id, name, email, status, placement, created_at`;
  return row && toOrganization(row);
}

export function emailTaken(): ServiceError {
  return new ServiceError('email_taken', 'an organization with this e-mail address exists already', {
    hint: 'Its key still works, and POST /api/auth/rotate-key replaces it. If the key is lost, the operator can issue a new one: postern admin key issue <org>.',
  });
}

export function noOrganization(id: string): ServiceError {
  return new ServiceError('not_found', `there is no organization "${id}"`);
}

export async function updateStatus(sql: Sql, id: string, status: OrganizationStatus): Promise<void> {
  await sql`update postern.organizations set status = ${status}, revision = revision + 1 where id = ${id}`;
}
