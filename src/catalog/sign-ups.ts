import { rateLimitAddress } from '../auth/tokens.ts';
import { ServiceError } from '../errors.ts';
import type { Actor, Origin } from '../observation.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import { claimRoom } from './clusters.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import { type KeyState, notifyChange } from './credentials.ts';
import { type ApiKey, findFirstKey, type NewApiKey } from './key-rows.ts';
import { storeLimits } from './limits.ts';
import {
  type ChangeOrganization,
  emailKey,
  emailTaken,
  insertOrganization,
  lockOrganization,
  type NewOrganization,
  type Organization,
  type OrganizationRow,
  type Placement,
  toOrganization,
  updateStatus,
} from './organization.ts';

interface SignedUp {
  readonly organization: Organization;
  readonly key: ApiKey;
  /** Undefined if attempts are not counted. */
  readonly quota: SignupQuota | undefined;
}

interface SignUpRegistryOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  readonly now: () => Date;
  /** This process's number among those that share the database. */
  readonly process: number;
  readonly change: ChangeOrganization;
  /** Called with the state after a change made without {@link change}. */
  readonly changed: (state: KeyState) => void;
}

/** Sign-ups from their record to the organization that can log in, those that fail or are interrupted, and invitations to sign up. */
export class SignUpRegistry {
  readonly #options: SignUpRegistryOptions;

  constructor(options: SignUpRegistryOptions) {
    this.#options = options;
  }

  /**
   * Records an organization as `provisioning`, with its first key. The attempt counts for the client's address. If the sign-up
   * fails, the invitation may be used again.
   * @throws ServiceError `rate_limited`, `email_taken`, `invite_invalid`; ClusterFullError, and then the attempt does not count
   */
  async record(request: SignUp, origin: Origin): Promise<SignedUp> {
    const { database, now, process } = this.#options;
    const { signupsPerHour: limit } = request;
    const { quota, created } = await database.lowPriorityTransaction(async (sql) => ({
      quota: limit === undefined ? undefined : await countSignUp(sql, origin.sourceIp, limit, now()),
      created: await recordSignUp(sql, request, process, now()),
    }));
    if (created === 'email_taken') throw emailTaken();
    if (created === 'invite_invalid') throw inviteInvalid();
    return { ...created, quota };
  }

  /**
   * Records a clone of an organization, in the same way.
   * @returns the organization that is to be copied
   * @throws ServiceError `not_found`, `invalid_request`, `rate_limited`, `too_many_clones`
   */
  async recordClone(clone: NewClone): Promise<Organization> {
    const { database, now, process } = this.#options;
    return (await database.changeFor(clone.sourceId, (sql) => recordClone(sql, clone, process, now()))).source;
  }

  /** Stores an invitation. @throws ServiceError `invalid_request` when there are too many */
  async invite(invitation: NewInvitation): Promise<void> {
    const { database, now } = this.#options;
    await database.transaction((sql) => insertInvitation(sql, invitation, now()));
  }

  /**
   * Opens an organization for logins, once its database or schema is ready.
   * @throws ServiceError `not_found` when the sign-up was undone meanwhile, `not_ready` when it is about to be undone
   */
  activate(organizationId: string, origin: Origin): Promise<Organization> {
    return this.#activate(organizationId, async (sql) => {
      const actor = await findFirstKey(sql, organizationId);
      await this.#options.audit.appendWith(sql, { organizationId, action: 'auth.signup', origin, actor, outcome: DONE });
    });
  }

  /** The same for a clone. It is recorded in the logs of both organizations. */
  activateClone(organizationId: string, sourceId: string, origin: Origin, actor?: Omit<Actor, 'organizationId'>): Promise<Organization> {
    return this.#activate(organizationId, async (sql) => {
      for (const id of [organizationId, sourceId].sort()) {
        const entry = { organizationId: id, action: 'organization.cloned', origin, outcome: DONE } as const;
        await this.#options.audit.appendWith(sql, { ...entry, ...(id === sourceId ? { actor } : {}) });
      }
    });
  }

  #activate(organizationId: string, record: (sql: Sql) => Promise<void>): Promise<Organization> {
    const { change, process } = this.#options;
    return change(organizationId, async (sql, organization) => {
      if (organization.status !== 'provisioning') return organization;
      if (!(await isOwnSignUp(sql, organizationId, process))) {
        throw new ServiceError('not_ready', 'the sign-up was interrupted', { retryAfterS: 1 });
      }
      await updateStatus(sql, organizationId, 'active');
      await record(sql);
      return { ...organization, status: 'active' };
    });
  }

  /** Called when this process gives a sign-up up, even one that has become active: its key has not been sent to anybody. */
  async abandon(organizationId: string): Promise<void> {
    const { database, process, changed } = this.#options;
    const state = await database.transaction(async (sql) =>
      (await abandonSignUp(sql, organizationId, process)) ? notifyChange(sql, organizationId) : undefined,
    );
    if (state !== undefined) changed(state);
  }

  /** Lets its e-mail address and invitation be used again, before a sign-up that failed can be undone. */
  async release(organizationId: string): Promise<void> {
    await this.#options.database.transaction((sql) => releaseSignUp(sql, organizationId));
  }

  /** Deletes a sign-up that failed before it became active, except its attempt. */
  async delete(organizationId: string): Promise<void> {
    await this.#options.database.transaction((sql) => deleteSignUp(sql, organizationId));
  }

  /**
   * Interrupted sign-ups: still `provisioning`, and the process that was carrying them out has ended or given up. From now on
   * none of them can be activated, so that no database is dropped whose organization has just become active.
   * @param underWay the ids of those that this process is carrying out
   */
  takeInterrupted(underWay: Iterable<string> = []): Promise<Organization[]> {
    const { database, process } = this.#options;
    return database.run((sql) => takeInterrupted(sql, process, underWay));
  }
}

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
async function releaseSignUp(sql: Sql, id: string): Promise<void> {
  // No e-mail address is like an id.
  await sql`update postern.organizations set email_key = id where id = ${id} and status = 'provisioning'`;
  await sql`update postern.invitations set organization_id = null where organization_id = ${id}`;
}

/**
 * Inserts an organization, and uses up its invitation unless the sign-up is undone later.
 * @returns why it cannot
 * @throws ClusterFullError
 */
async function recordSignUp(
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
async function deleteSignUp(sql: Sql, id: string): Promise<void> {
  const [found] = await sql`select id from postern.organizations where id = ${id} and status = 'provisioning' for update`;
  if (found === undefined) return;
  // Failed logins may add entries. While the head is locked they cannot.
  await sql`select from postern.audit_heads where organization_id = ${id} for update`;
  await sql`delete from postern.audit_blocks where organization_id = ${id}`;
  await sql`delete from postern.audit_heads where organization_id = ${id}`;
  await sql`delete from postern.organizations where id = ${id}`;
}

/** The number of no process. Any process may undo a sign-up with it. */
const NO_PROCESS = 0;

/**
 * Lets any process undo a sign-up, even one that has become active: its key has not been sent to anybody.
 * @returns whether this process had begun it
 */
async function abandonSignUp(sql: Sql, id: string, ownerProcess: number): Promise<boolean> {
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
async function takeInterrupted(sql: Sql, ownerProcess: number, underWay: Iterable<string>): Promise<Organization[]> {
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
    returning o.id, o.name, o.email, o.status, o.placement, o.limits, o.disk_state, o.created_at`;
  return rows.map(toOrganization);
}

/** Whether this process still owns the sign-up. The caller has locked the organization. */
async function isOwnSignUp(sql: Sql, id: string, ownerProcess: number): Promise<boolean> {
  const [found] = await sql`select from postern.organizations where id = ${id} and provisioner = ${ownerProcess}`;
  return found !== undefined;
}

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
async function insertInvitation(sql: Sql, { digest, email, expiresAt }: NewInvitation, now: Date): Promise<void> {
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
async function lockInvitation(sql: Sql, digest: Buffer, email: string, now: Date): Promise<boolean> {
  const [found] = await sql`
    select from postern.invitations
    where digest = ${digest} and organization_id is null and expires_at > ${now} and coalesce(email_key, ${emailKey(email)}) = ${emailKey(email)}
    for update`;
  return found !== undefined;
}

async function useInvitation(sql: Sql, digest: Buffer, organizationId: string): Promise<void> {
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
async function countSignUp(sql: Sql, sourceIp: string, limit: number, now: Date): Promise<SignupQuota> {
  const hint = 'The operator sets how many: POSTERN_SIGNUPS_PER_HOUR.';
  return countOne(sql, rateLimitAddress(sourceIp), limit, now, 'sign-ups an hour are allowed from one address', hint);
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
async function countClone(sql: Sql, organizationId: string, now: Date): Promise<void> {
  await countOne(sql, `clone ${organizationId}`, CLONES_PER_HOUR, now, 'clones an hour are allowed');
}

async function countOne(sql: Sql, address: string, limit: number, now: Date, whatIsAllowed: string, hint?: string): Promise<SignupQuota> {
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
    throw new ServiceError('rate_limited', `at most ${limit} ${whatIsAllowed}`, {
      retryAfterS: resetS,
      ...(hint === undefined ? {} : { hint }),
    });
  }
  await sql`insert into postern.signup_attempts (address, attempted_at) values (${address}, ${now})`;
  return { limit, remaining: limit - count - 1, resetS };
}

export async function deleteOldAttempts(sql: Sql, now: Date): Promise<void> {
  await sql`delete from postern.signup_attempts where attempted_at <= ${new Date(now.getTime() - WINDOW_MS)}`;
}

/** How many clones an organization may have at once. */
const CLONES_MAX = 5;

interface NewClone {
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
async function recordClone(
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
  const organization = { ...created.organization, limits: source.limits };
  await storeLimits(sql, organization);
  return { ...created, organization, source };
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
    select o.id, o.name, o.email, o.status, o.placement, o.limits, o.disk_state, o.created_at, c.source_id, c.expires_at
    from postern.clones c join postern.organizations o on o.id = c.organization_id
    where c.source_id = ${sourceId} and o.status <> 'dropped' order by o.created_at, o.id`;
  return rows.map(toClone);
}

/** Clones to be dropped: their time is over, or the organization that they were copied from is gone. */
export async function listExpiredClones(sql: Sql): Promise<Clone[]> {
  const rows = await sql<CloneRow[]>`
    select o.id, o.name, o.email, o.status, o.placement, o.limits, o.disk_state, o.created_at, c.source_id, c.expires_at
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
