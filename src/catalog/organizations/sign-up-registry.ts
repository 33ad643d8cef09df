import { ServiceError } from '../../errors.ts';
import type { Actor, Origin } from '../../observation.ts';
import { DONE } from '../audit/entries/event-record.ts';
import type { AuditLog } from '../audit/log.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import type { ApiKey } from '../keys/api-key.ts';
import { findFirstKey } from '../keys/key-rows.ts';
import { type KeyState, notifyChange } from '../keys/key-state-notifications.ts';
import { type NewClone, recordClone } from './clone-rows.ts';
import { countSignUp, type SignupQuota } from './hourly-limits.ts';
import { insertInvitation, inviteInvalid, type NewInvitation } from './invitations.ts';
import type { Organization } from './organization.ts';
import { type ChangeOrganization, emailTaken, updateStatus } from './organization-rows.ts';
import { abandonSignUp, deleteSignUp, isOwnSignUp, recordSignUp, releaseSignUp, type SignUp, takeInterrupted } from './sign-up-rows.ts';

export interface SignedUp {
  readonly organization: Organization;
  readonly key: ApiKey;
  /** Undefined if attempts are not counted. */
  readonly quota: SignupQuota | undefined;
}

export interface SignUpRegistryOptions {
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
