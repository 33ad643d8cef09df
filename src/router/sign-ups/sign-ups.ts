import type { Catalog, SignUp, SignupQuota } from '../../catalog/catalog.ts';
import type { Organization } from '../../catalog/organizations/organization.ts';
import type { Observe, Origin } from '../../observation.ts';
import { SignUpRefusals } from '../limits/sign-up-refusals.ts';
import type { LockExhaustion } from '../lock-exhaustion.ts';
import type { Provisioner } from '../placement/provisioner.ts';
import { mintKey } from './mint-key.ts';
import { newOrganizationId } from './random-ids.ts';

export interface SignedUp {
  readonly organization: Organization;
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  readonly keyId: string;
  readonly quota: SignupQuota;
}

export interface SignUpsOptions {
  readonly catalog: Catalog;
  readonly provisioner: Provisioner;
  readonly locks: LockExhaustion;
  /** The limit for one address. */
  readonly signupsPerHour: number;
  readonly observe: Observe;
}

/** Creates organizations, each with a database or schema. A sign-up that fails is undone. */
export class SignUps {
  readonly #catalog: Catalog;
  readonly #provisioner: Provisioner;
  readonly #locks: LockExhaustion;
  readonly #signupsPerHour: number;
  readonly #observe: Observe;
  readonly #refused = new SignUpRefusals();
  /** Ids of sign-ups that have not been answered yet. */
  readonly #underWay = new Set<string>();
  /** Ids of failed sign-ups, perhaps already active, that the control database still records as this process's. */
  readonly #abandoned = new Set<string>();

  constructor({ catalog, provisioner, locks, signupsPerHour, observe }: SignUpsOptions) {
    this.#catalog = catalog;
    this.#provisioner = provisioner;
    this.#locks = locks;
    this.#signupsPerHour = signupsPerHour;
    this.#observe = observe;
  }

  /**
   * Creates an organization with its database or schema and its first key.
   * @throws ServiceError `rate_limited`, `email_taken`
   */
  async create(request: { readonly orgName: string; readonly email: string }, origin: Origin): Promise<SignedUp> {
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
    for (const { id, placement } of await this.#catalog.interruptedSignups(this.#underWay)) await this.#undo(id, placement, undefined);
  }

  async #create(id: string, request: { readonly orgName: string; readonly email: string }, origin: Origin): Promise<SignedUp> {
    this.#refused.check(origin.sourceIp);
    const placement = this.#provisioner.placementFor(id);
    const { apiKey, record } = await mintKey();
    const signUp = { id, name: request.orgName, email: request.email, placement, key: record, signupsPerHour: this.#signupsPerHour };
    const { quota } = await this.#record(signUp, origin);
    try {
      await this.#locks.retryWhenFull(() => this.#provisioner.provision(placement));
      const organization = await this.#catalog.activate(id, origin);
      return { organization, apiKey, keyId: record.id, quota };
    } catch (error) {
      // It may be active nevertheless, if only the answer was lost.
      this.#abandoned.add(id);
      await this.#undo(id, placement, error);
      throw error;
    }
  }

  async #record(signUp: SignUp, origin: Origin): Promise<{ readonly quota: SignupQuota }> {
    try {
      return await this.#locks.retryWhenFull(() => this.#catalog.signUp(signUp, origin));
    } catch (error) {
      this.#refused.remember(origin.sourceIp, error);
      throw error;
    }
  }

  async #abandon(id: string): Promise<void> {
    await this.#catalog.abandonSignup(id);
    this.#abandoned.delete(id);
  }

  async #undo(id: string, placement: Organization['placement'], cause: unknown): Promise<void> {
    try {
      if (this.#abandoned.has(id)) await this.#abandon(id);
      await this.#provisioner.deprovision(placement);
      await this.#catalog.deleteSignup(id);
    } catch (error) {
      this.#observe({ name: 'service.failure', message: `sign-up ${id} could not be undone yet`, cause: cause ?? error });
    }
  }
}
