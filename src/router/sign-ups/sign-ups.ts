import type { Catalog, SignUp, SignupQuota } from '../../catalog/catalog.ts';
import type { Organization } from '../../catalog/organizations/organization.ts';
import type { Observe, Origin } from '../../observation.ts';
import { RefusedAddresses } from '../limits/refused-addresses.ts';
import type { LockExhaustion } from '../lock-exhaustion.ts';
import type { Provisioner } from '../placement/placement.ts';
import { newOrganizationId } from './identifiers.ts';
import { mintKey } from './mint-key.ts';

export interface SignedUp {
  readonly organization: Organization;
  /** The key in the clear: shown once, kept nowhere. */
  readonly apiKey: string;
  readonly quota: SignupQuota;
}

export interface SignUpsOptions {
  readonly catalog: Catalog;
  readonly provisioner: Provisioner;
  readonly locks: LockExhaustion;
  /** From one address. */
  readonly signupsPerHour: number;
  readonly observe: Observe;
}

/** Lets organizations in, each with a place for its data. One that fails on the way leaves nothing behind. */
export class SignUps {
  readonly #catalog: Catalog;
  readonly #provisioner: Provisioner;
  readonly #locks: LockExhaustion;
  readonly #signupsPerHour: number;
  readonly #observe: Observe;
  readonly #refused = new RefusedAddresses();
  /** Ids of those that have not been answered yet. */
  readonly #underWay = new Set<string>();
  /** Of those that have failed, perhaps after they were complete, while the control database could not be told. */
  readonly #disowned = new Set<string>();

  constructor({ catalog, provisioner, locks, signupsPerHour, observe }: SignUpsOptions) {
    this.#catalog = catalog;
    this.#provisioner = provisioner;
    this.#locks = locks;
    this.#signupsPerHour = signupsPerHour;
    this.#observe = observe;
  }

  /**
   * Creates an organization with a place for its data and its first key.
   * @throws ServiceError `rate_limited`, `email_taken`
   */
  async add(request: { readonly orgName: string; readonly email: string }, origin: Origin): Promise<SignedUp> {
    const id = newOrganizationId();
    this.#underWay.add(id);
    try {
      return await this.#add(id, request, origin);
    } finally {
      this.#underWay.delete(id);
    }
  }

  /** Undoes those that were cut short, here or in another process: their keys were never handed out. */
  async undoInterrupted(): Promise<void> {
    for (const id of this.#disowned) await this.#disown(id);
    for (const { id, placement } of await this.#catalog.interruptedSignups(this.#underWay)) await this.#undo(id, placement, undefined);
  }

  async #add(id: string, request: { readonly orgName: string; readonly email: string }, origin: Origin): Promise<SignedUp> {
    this.#refused.check(origin.sourceIp);
    const placement = this.#provisioner.place(id);
    const { apiKey, record } = await mintKey();
    const signUp = { id, name: request.orgName, email: request.email, placement, key: record, signupsPerHour: this.#signupsPerHour };
    const { quota } = await this.#enter(signUp, origin);
    try {
      await this.#locks.withRoom(() => this.#provisioner.provision(placement));
      const organization = await this.#catalog.activate(id, origin);
      return { organization, apiKey, quota };
    } catch (error) {
      // It may be active all the same, where only the answer was lost.
      this.#disowned.add(id);
      await this.#undo(id, placement, error);
      throw error;
    }
  }

  async #enter(signUp: SignUp, origin: Origin): Promise<{ readonly quota: SignupQuota }> {
    try {
      return await this.#locks.withRoom(() => this.#catalog.signUp(signUp, origin));
    } catch (error) {
      this.#refused.heard(origin.sourceIp, error);
      throw error;
    }
  }

  async #disown(id: string): Promise<void> {
    await this.#catalog.abandonSignup(id);
    this.#disowned.delete(id);
  }

  async #undo(id: string, placement: Organization['placement'], cause: unknown): Promise<void> {
    try {
      if (this.#disowned.has(id)) await this.#disown(id);
      await this.#provisioner.deprovision(placement);
      await this.#catalog.deleteSignup(id);
    } catch (error) {
      this.#observe({ name: 'service.failure', message: `sign-up ${id} could not be undone yet`, cause: cause ?? error });
    }
  }
}
