import { digestApiKey, isWellFormedInvitation } from '../../auth/api-key.ts';
import type { Catalog, SignUp, SignupQuota } from '../../catalog/catalog.ts';
import { inviteInvalid } from '../../catalog/organizations/invitations.ts';
import type { Organization } from '../../catalog/organizations/organization.ts';
import { ServiceError } from '../../errors.ts';
import type { Observe, Origin } from '../../observation.ts';
import { SignUpRefusals } from '../limits/sign-up-refusals.ts';
import type { LockExhaustion } from '../lock-exhaustion.ts';
import type { Provisioner } from '../placement/provisioner.ts';
import { mintKey } from './mint-key.ts';
import { newOrganizationId } from './organization-and-key-ids.ts';

export interface SignedUp {
  readonly organization: Organization;
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  readonly keyId: string;
  /** Undefined if sign-ups are not limited. */
  readonly quota: SignupQuota | undefined;
}

export interface SignUpRequest {
  readonly orgName: string;
  readonly email: string;
  /** An invitation's token; it counts only where one is needed. */
  readonly invite?: string | undefined;
}

export interface SignUpsOptions {
  readonly catalog: Catalog;
  readonly provisioner: Provisioner;
  readonly locks: Pick<LockExhaustion, 'retryWhenFull'>;
  /** Who may sign up: anybody, who has an invitation, or nobody. */
  readonly mode: 'open' | 'invite' | 'closed';
  /** The limit for one address; undefined: none. */
  readonly signupsPerHour: number | undefined;
  readonly observe: Observe;
}

/** Creates organizations, each with a database or schema. A sign-up that fails is undone. */
export class SignUps {
  readonly #catalog: Catalog;
  readonly #provisioner: Provisioner;
  readonly #locks: SignUpsOptions['locks'];
  readonly #mode: SignUpsOptions['mode'];
  readonly #signupsPerHour: number | undefined;
  readonly #observe: Observe;
  readonly #refused = new SignUpRefusals();
  /** Ids of sign-ups that have not been answered yet. */
  readonly #underWay = new Set<string>();
  /** Ids of failed sign-ups, perhaps already active, that the control database still records as this process's. */
  readonly #abandoned = new Set<string>();

  constructor({ catalog, provisioner, locks, mode, signupsPerHour, observe }: SignUpsOptions) {
    this.#catalog = catalog;
    this.#provisioner = provisioner;
    this.#locks = locks;
    this.#mode = mode;
    this.#signupsPerHour = signupsPerHour;
    this.#observe = observe;
  }

  /**
   * Creates an organization with its database or schema and its first key.
   * @throws ServiceError `signup_closed`, `invite_required`, `invite_invalid`, `rate_limited`, `email_taken`
   */
  async create(request: SignUpRequest, origin: Origin): Promise<SignedUp> {
    const id = newOrganizationId();
    this.#underWay.add(id);
    try {
      return await this.#create(id, request, origin);
    } finally {
      this.#underWay.delete(id);
    }
  }

  /** Undoes interrupted sign-ups of this and other processes. Their keys were never sent to anybody. */
  async undoInterrupted(): Promise<void> {
    for (const id of this.#abandoned) await this.#abandon(id);
    for (const { id, placement } of await this.#catalog.signUps.takeInterrupted(this.#underWay)) await this.#undo(id, placement, undefined);
  }

  async #create(id: string, { orgName: name, email, invite }: SignUpRequest, origin: Origin): Promise<SignedUp> {
    const invitation = this.#invitation(invite);
    this.#refused.check(origin.sourceIp);
    const placement = this.#provisioner.placementFor(id);
    const { apiKey, record } = await mintKey();
    const signUp = { id, name, email, placement, key: record, invitation, signupsPerHour: this.#signupsPerHour };
    const { quota } = await this.#record(signUp, origin);
    try {
      await this.#locks.retryWhenFull(() => this.#provisioner.provision(placement));
      const organization = await this.#catalog.signUps.activate(id, origin);
      return { organization, apiKey, keyId: record.id, quota };
    } catch (error) {
      // It may be active nevertheless, if only the answer was lost.
      this.#abandoned.add(id);
      await this.#undo(id, placement, error);
      throw error;
    }
  }

  /** @returns the digest of the invitation, where one is needed */
  #invitation(invite: string | undefined): Buffer | undefined {
    if (this.#mode === 'open') return undefined;
    if (this.#mode === 'closed') {
      throw new ServiceError('signup_closed', 'sign-up is closed: only the operator can create an organization', {
        hint: 'Ask the operator: postern admin org create.',
      });
    }
    if (invite === undefined) {
      throw new ServiceError('invite_required', 'sign-up needs an invitation, sent as "invite"', {
        hint: 'Ask the operator for one: postern admin invite.',
      });
    }
    if (!isWellFormedInvitation(invite)) throw inviteInvalid();
    return digestApiKey(invite);
  }

  async #record(signUp: SignUp, origin: Origin): Promise<Pick<SignedUp, 'quota'>> {
    try {
      return await this.#locks.retryWhenFull(() => this.#catalog.signUps.record(signUp, origin));
    } catch (error) {
      this.#refused.remember(origin.sourceIp, error);
      throw error;
    }
  }

  async #abandon(id: string): Promise<void> {
    await this.#catalog.signUps.abandon(id);
    this.#abandoned.delete(id);
  }

  async #undo(id: string, placement: Organization['placement'], cause: unknown): Promise<void> {
    try {
      if (this.#abandoned.has(id)) await this.#abandon(id);
      await this.#provisioner.deprovision(placement);
      await this.#catalog.signUps.delete(id);
    } catch (error) {
      this.#observe({ name: 'service.failure', message: `sign-up ${id} could not be undone yet`, cause: cause ?? error });
    }
  }
}
