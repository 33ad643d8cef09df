import { claimRoom } from '../clusters/cluster-rows.ts';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { Sql } from '../database/control-connection.ts';
import type { NewApiKey } from '../keys/api-key.ts';
import { lockInvitation, useInvitation } from './invitations.ts';
import type { Organization, Placement } from './organization.ts';
import { insertOrganization, type NewOrganization, type OrganizationRow, toOrganization } from './organization-rows.ts';

export interface SignUp {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly placement: Placement;
  readonly key: NewApiKey;
  /** The digest of the invitation that it uses; undefined: it needs none. */
  readonly invitation?: Buffer | undefined;
  /** How many sign-ups one address may make in an hour; undefined: any number. */
  readonly signupsPerHour: number | undefined;
}

/**
 * Gives back the e-mail address and the invitation of a sign-up that cannot be undone yet, because its cluster does not answer, so that
 * they can be used again meanwhile.
 */
export async function releaseSignUp(sql: Sql, id: string): Promise<void> {
  // No e-mail address is like an id.
  await sql`update postern.organizations set email_key = id where id = ${id} and status = 'provisioning'`;
  await sql`update postern.invitations set organization_id = null where organization_id = ${id}`;
}

/**
 * Inserts an organization, and uses up its invitation unless the sign-up is undone later.
 * @returns why it cannot
 * @throws ClusterFullError
 */
export async function recordSignUp(
  sql: Sql,
  signUp: SignUp,
  ownerProcess: number,
  now: Date,
): Promise<NewOrganization | 'email_taken' | 'invite_invalid'> {
  const { id, email, placement, invitation } = signUp;
  if (invitation !== undefined && !(await lockInvitation(sql, invitation, email, now))) return 'invite_invalid';
  await claimRoom(sql, placement);
  const created = await insertOrganization(sql, signUp, ownerProcess, now);
  if (created !== undefined && invitation !== undefined) await useInvitation(sql, invitation, id);
  return created ?? 'email_taken';
}

/** Deletes a sign-up that has not become active. The attempt still counts. */
export async function deleteSignUp(sql: Sql, id: string): Promise<void> {
  const [found] = await sql`select id from postern.organizations where id = ${id} and status = 'provisioning' for update`;
  if (found === undefined) return;
  // Failed logins may add entries. While the head is locked they cannot.
  await sql`select from postern.audit_heads where organization_id = ${id} for update`;
  await sql`delete from postern.audit_blocks where organization_id = ${id}`;
  await sql`delete from postern.organizations where id = ${id}`;
}

/** The number of no process. Any process may undo a sign-up with it. */
const NO_PROCESS = 0;

/**
 * Lets any process undo a sign-up, even one that has become active: its key has not been sent to anybody.
 * @returns whether this process had begun it
 */
export async function abandonSignUp(sql: Sql, id: string, ownerProcess: number): Promise<boolean> {
  const rows = await sql`
    update postern.organizations set status = 'provisioning', provisioner = ${NO_PROCESS}, revision = revision + 1
    where id = ${id} and provisioner = ${ownerProcess} and status in ('provisioning', 'active')
    returning id`;
  return rows.length > 0;
}

/**
 * Sign-ups whose process has ended or lost its connection: a process holds a lock on its number as long as it receives
 * notifications. The same statement takes them from it, so a process that only lost its connection notices when it finishes.
 * This process's own are included if they are not `underWay`.
 */
export async function takeInterrupted(sql: Sql, ownerProcess: number, underWay: Iterable<string>): Promise<Organization[]> {
  const ids = JSON.stringify([...underWay]);
  const rows = await sql<OrganizationRow[]>`
    with waiting as materialized (
      select id, provisioner from postern.organizations where status = 'provisioning' order by created_at, id
    ), given_up as materialized (
      select id from waiting where case
        when provisioner = ${ownerProcess} then not ${ids}::text::jsonb ? id
        else pg_try_advisory_xact_lock(${ADVISORY_LOCKS.process}, provisioner)
      end
    )
    update postern.organizations o set provisioner = ${NO_PROCESS}
    from given_up where o.id = given_up.id and o.status = 'provisioning'
    returning o.id, o.name, o.email, o.status, o.placement, o.created_at`;
  return rows.map(toOrganization);
}

/** Whether this process still owns the sign-up. The caller has locked the organization. */
export async function isOwnSignUp(sql: Sql, id: string, ownerProcess: number): Promise<boolean> {
  const [found] = await sql`select from postern.organizations where id = ${id} and provisioner = ${ownerProcess}`;
  return found !== undefined;
}
