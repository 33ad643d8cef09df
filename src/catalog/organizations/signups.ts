import { isIPv4 } from 'node:net';
import ipaddr from 'ipaddr.js';
import { ServiceError } from '../../errors.ts';
import { startChain } from '../audit/blocks/append.ts';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { Sql } from '../database/control-connection.ts';
import type { NewApiKey } from '../keys/credential.ts';
import { insertKey } from '../keys/keys.ts';
import type { ApiKey, Organization, Placement } from './organization.ts';
import { type OrganizationRow, toOrganization } from './organizations.ts';

const WINDOW_MS = 3_600_000;

export interface SignUp {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly placement: Placement;
  readonly key: NewApiKey;
  /** How many are allowed from one address within an hour. */
  readonly signupsPerHour: number;
}

/** What an address has left. */
export interface SignupQuota {
  readonly limit: number;
  readonly remaining: number;
  /** Seconds until one more is allowed. */
  readonly resetS: number;
}

/**
 * Counts an attempt, under a lock so that no two of one address are counted at once. Every attempt counts but those that
 * are refused here: whoever keeps trying is let in when the oldest one is an hour old.
 * @throws ServiceError `rate_limited`
 */
export async function countAttempt(sql: Sql, sourceIp: string, limit: number, now: Date): Promise<SignupQuota> {
  const address = limitedAddress(sourceIp);
  await sql`select pg_advisory_xact_lock(${ADVISORY_LOCKS.signup}, hashtext(${address}))`;
  const [attempts] = await sql<{ count: number; oldest: Date | null }[]>`
    select count(*)::int as count, min(attempted_at) as oldest
    from (
      select attempted_at from postern.signup_attempts
      where address = ${address} and attempted_at > ${new Date(now.getTime() - WINDOW_MS)}
      order by attempted_at desc
      limit ${limit}
    ) latest`;
  const count = attempts?.count ?? 0;
  const resetS = Math.max(1, Math.ceil(((attempts?.oldest ?? now).getTime() + WINDOW_MS - now.getTime()) / 1_000));
  if (count >= limit) {
    throw new ServiceError('rate_limited', `at most ${limit} sign-ups an hour are allowed from one address`, { retryAfterS: resetS });
  }
  await sql`insert into postern.signup_attempts (address, attempted_at) values (${address}, ${now})`;
  return { limit, remaining: limit - count - 1, resetS };
}

/** @returns undefined when the e-mail address is taken, in whatever case it is written */
export async function insertOrganization(
  sql: Sql,
  { id, name, email, placement, key }: SignUp,
  provisioner: number,
  now: Date,
): Promise<{ organization: Organization; key: ApiKey } | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
    values (
      ${id}, ${name}, ${email}, ${emailKey(email)}, 'provisioning', ${provisioner}, ${JSON.stringify(placement)}::text::jsonb, ${now})
    on conflict (email_key) where status <> 'dropped' do nothing
    returning id, name, email, status, placement, created_at`;
  if (row === undefined) return undefined;
  await startChain(sql, id);
  return { organization: toOrganization(row), key: await insertKey(sql, id, key, now) };
}

/** Removes every trace of a sign-up that has not become active; the attempt still counts. */
export async function deleteOrganization(sql: Sql, id: string): Promise<void> {
  const [found] = await sql`select id from postern.organizations where id = ${id} and status = 'provisioning' for update`;
  if (found === undefined) return;
  // With the head locked nobody adds entries: failed logins may have.
  await sql`select from postern.audit_heads where organization_id = ${id} for update`;
  await sql`delete from postern.audit_blocks where organization_id = ${id}`;
  await sql`delete from postern.organizations where id = ${id}`;
}

/** No process's number: whoever finds a sign-up with it may undo it. */
const NOBODY = 0;

/**
 * Makes a sign-up anybody's to undo, also where it has become active: nobody has been told its key.
 * @returns whether this process had begun it
 */
export async function disownSignUp(sql: Sql, id: string, provisioner: number): Promise<boolean> {
  const rows = await sql`
    update postern.organizations set status = 'provisioning', provisioner = ${NOBODY}, revision = revision + 1
    where id = ${id} and provisioner = ${provisioner} and status in ('provisioning', 'active')
    returning id`;
  return rows.length > 0;
}

/**
 * Those whose process is gone, or is not known to be there: it held a lock on its number for as long as it could be told of
 * changes. They are taken from it in the same statement: one that was merely cut off finds that out when it has finished.
 * This process's own are among them where it is not at them any more.
 */
export async function takeInterrupted(sql: Sql, provisioner: number, underWay: Iterable<string>): Promise<Organization[]> {
  const ids = JSON.stringify([...underWay]);
  const rows = await sql<OrganizationRow[]>`
    with waiting as materialized (
      select id, provisioner from postern.organizations where status = 'provisioning' order by created_at, id
    ), given_up as materialized (
      select id from waiting where case
        when provisioner = ${provisioner} then not ${ids}::text::jsonb ? id
        else pg_try_advisory_xact_lock(${ADVISORY_LOCKS.process}, provisioner)
      end
    )
    update postern.organizations o set provisioner = ${NOBODY}
    from given_up where o.id = given_up.id and o.status = 'provisioning'
    returning o.id, o.name, o.email, o.status, o.placement, o.created_at`;
  return rows.map(toOrganization);
}

/** Whether the sign-up is still this process's to finish; the organization is locked. */
export async function isOwnSignUp(sql: Sql, id: string, provisioner: number): Promise<boolean> {
  const [found] = await sql`select from postern.organizations where id = ${id} and provisioner = ${provisioner}`;
  return found !== undefined;
}

export async function deleteOldAttempts(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.signup_attempts where attempted_at <= ${new Date(now.getTime() - WINDOW_MS)}`;
}

function emailKey(email: string): string {
  return email.normalize('NFC').toLowerCase();
}

/** What counts as one address: an IPv4 address, also when written as IPv6; of IPv6 the /64 that a client usually has whole. */
export function limitedAddress(sourceIp: string): string {
  if (isIPv4(sourceIp) || !ipaddr.isValid(sourceIp)) return sourceIp;
  const address = ipaddr.process(sourceIp);
  if (!(address instanceof ipaddr.IPv6)) return address.toString();
  return `${new ipaddr.IPv6([...address.parts.slice(0, 4), 0, 0, 0, 0]).toString()}/64`;
}
