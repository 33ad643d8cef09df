import { ServiceError } from '../../errors.ts';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { Sql } from '../database/control-connection.ts';
import { emailKey } from './email-address.ts';

const OPEN_MAX = 10_000;

/** An invitation: who has the token may sign up once. */
export interface NewInvitation {
  /** SHA-256 of the token, which is not stored. */
  readonly digest: Buffer;
  /** The only address that may use it; undefined: any may. */
  readonly email?: string | undefined;
  readonly expiresAt: Date;
}

/** @throws ServiceError `invalid_request` when there are too many */
export async function insertInvitation(sql: Sql, { digest, email, expiresAt }: NewInvitation, now: Date): Promise<void> {
  await sql`select pg_advisory_xact_lock(${ADVISORY_LOCKS.invitation}, 0)`;
  await deleteExpiredInvitations(sql, now);
  const [open] = await sql<{ count: number }[]>`select count(*)::int as count from postern.invitations where organization_id is null`;
  if ((open?.count ?? 0) >= OPEN_MAX) {
    throw new ServiceError('invalid_request', `there are ${OPEN_MAX} invitations already that have not been used`);
  }
  await sql`
    insert into postern.invitations (digest, email_key, created_at, expires_at)
    values (${digest}, ${email === undefined ? null : emailKey(email)}, ${now}, ${expiresAt})`;
}

/** Locks an invitation, so that of several sign-ups with it one at a time goes on. @returns whether this address may use it */
export async function lockInvitation(sql: Sql, digest: Buffer, email: string, now: Date): Promise<boolean> {
  const [found] = await sql`
    select from postern.invitations
    where digest = ${digest} and organization_id is null and expires_at > ${now} and coalesce(email_key, ${emailKey(email)}) = ${emailKey(email)}
    for update`;
  return found !== undefined;
}

export async function useInvitation(sql: Sql, digest: Buffer, organizationId: string): Promise<void> {
  await sql`update postern.invitations set organization_id = ${organizationId} where digest = ${digest}`;
}

export async function deleteExpiredInvitations(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.invitations where expires_at <= ${now}`;
}

/** For an invitation that may not be used. Which reason it is would tell anybody whether it exists. */
export function inviteInvalid(): ServiceError {
  return new ServiceError(
    'invite_invalid',
    'the invitation does not exist, has been used or has expired, or is for another e-mail address',
    { hint: 'Ask the operator for another one: postern admin invite.' },
  );
}
