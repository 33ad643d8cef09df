import { rateLimitAddress } from '../../auth/tokens.ts';
import { ServiceError } from '../../errors.ts';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { Sql } from '../database/control-connection.ts';

const WINDOW_MS = 3_600_000;
const EMAIL_CHANGES_PER_HOUR = 5;
const NAME_CHANGES_PER_HOUR = 60;
const CLONES_PER_HOUR = 30;

/** How many sign-ups an address may still make. */
export interface SignupQuota {
  readonly limit: number;
  readonly remaining: number;
  /** Seconds until one more is allowed. */
  readonly resetS: number;
}

/**
 * Counts an attempt, under a lock, so that concurrent attempts of one address are counted one by one. An attempt that is refused
 * here does not count: a client that keeps trying succeeds when its oldest attempt is an hour old.
 * @throws ServiceError `rate_limited`
 */
export async function countSignUp(sql: Sql, sourceIp: string, limit: number, now: Date): Promise<SignupQuota> {
  return countOne(sql, rateLimitAddress(sourceIp), limit, now, 'sign-ups an hour are allowed from one address');
}

/**
 * Counts a change of an organization's e-mail address. Without a limit, the replies would tell one organization which addresses others have.
 * @throws ServiceError `rate_limited`
 */
export async function countEmailChange(sql: Sql, organizationId: string, now: Date): Promise<void> {
  await countOne(sql, organizationId, EMAIL_CHANGES_PER_HOUR, now, 'changes of the e-mail address an hour are allowed');
}

/** Counts a change of an organization's name, each of which every process is told and the audit log records. @throws ServiceError `rate_limited` */
export async function countNameChange(sql: Sql, organizationId: string, now: Date): Promise<void> {
  await countOne(sql, `name ${organizationId}`, NAME_CHANGES_PER_HOUR, now, 'changes of the name an hour are allowed');
}

/** Counts a clone of an organization, because each pauses it for a moment. @throws ServiceError `rate_limited` */
export async function countClone(sql: Sql, organizationId: string, now: Date): Promise<void> {
  await countOne(sql, `clone ${organizationId}`, CLONES_PER_HOUR, now, 'clones an hour are allowed');
}

async function countOne(sql: Sql, address: string, limit: number, now: Date, whatIsAllowed: string): Promise<SignupQuota> {
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
    throw new ServiceError('rate_limited', `at most ${limit} ${whatIsAllowed}`, { retryAfterS: resetS });
  }
  await sql`insert into postern.signup_attempts (address, attempted_at) values (${address}, ${now})`;
  return { limit, remaining: limit - count - 1, resetS };
}

export async function deleteOldAttempts(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.signup_attempts where attempted_at <= ${new Date(now.getTime() - WINDOW_MS)}`;
}
