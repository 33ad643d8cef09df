import { digestApiKey, generateInvitation } from '../auth/tokens.ts';
import { DONE } from '../catalog/audit/records.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { OrganizationLimits } from '../catalog/limits.ts';
import { noOrganization, type Organization, type OrganizationStatus } from '../catalog/organization.ts';
import { OPERATOR_PAUSE, UNTIL_ENDED_MS } from '../catalog/pauses.ts';
import type { NewInvitation } from '../catalog/sign-ups.ts';
import type { Actor, Observe, Origin } from '../observation.ts';
import { describeProcesses, type RunningProcess, StillRunningError } from '../placement/roles.ts';
import { mintKey } from './accounts.ts';
import type { Clusters } from './clusters.ts';
import type { Tenant } from './lease.ts';

/** The key that an organization has asked with. */
type KeyActor = Omit<Actor, 'organizationId'>;

/** The result of a change to an organization. */
export interface Changed {
  readonly organization: Organization;
  /** Processes that have not ended yet. */
  readonly running?: string;
}

/** Those in which a clone has limits, also while it is being copied. */
const CLONE_STATUSES: readonly OrganizationStatus[] = ['provisioning', 'active', 'suspended'];

/**
 * What operators may do to organizations. All processes of the service are notified of every change, and it is
 * recorded in the organization's audit log.
 */
export class Operator {
  readonly #catalog: Catalog;
  readonly #clusters: Clusters;
  /** Ids of organizations for which it has been reported that a drop waits for processes. */
  readonly #waitedFor = new Set<string>();

  constructor(catalog: Catalog, clusters: Clusters) {
    this.#catalog = catalog;
    this.#clusters = clusters;
  }

  /** All organizations, also the dropped ones, in the order of their creation. */
  organizations(): Promise<Organization[]> {
    return this.#catalog.organizations.list();
  }

  /** @throws ServiceError `not_found` */
  async organization(id: string): Promise<Organization> {
    const organization = await this.#catalog.organizations.find(id);
    if (organization === undefined) throw noOrganization(id);
    return organization;
  }

  /**
   * Invites somebody to sign up once.
   * @returns the invitation's token, which is shown once and stored nowhere
   * @throws ServiceError `invalid_request` when there are too many
   */
  async invite(invitation: Omit<NewInvitation, 'digest'>): Promise<string> {
    const token = generateInvitation();
    await this.#catalog.signUps.invite({ ...invitation, digest: digestApiKey(token) });
    return token;
  }

  /**
   * Ends the organization's sessions and refuses its key until it is resumed. The same happens to its clones.
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async suspend(organizationId: string, origin: Origin): Promise<Changed> {
    const organization = await this.#catalog.organizations.setStatus(organizationId, 'suspended', origin);
    const running = [...(await this.#clusters.endSessions(organization.placement))];
    for (const clone of await this.#clonesIn(organizationId, 'active')) running.push(...(await this.#suspendClone(clone, origin)));
    return running.length === 0 ? { organization } : { organization, running: describeProcesses(running) };
  }

  async #suspendClone({ id, placement }: Organization, origin: Origin): Promise<readonly RunningProcess[]> {
    await this.#catalog.organizations.setStatus(id, 'suspended', origin);
    return this.#clusters.endSessions(placement);
  }

  async #clonesIn(sourceId: string, status: OrganizationStatus): Promise<Organization[]> {
    const clones = (await this.#catalog.organizations.clones(sourceId)).map(({ organization }) => organization);
    return clones.filter((organization) => organization.status === status);
  }

  /** Resumes the organization and its clones. @throws ServiceError `not_found`, `invalid_request` */
  async resume(organizationId: string, origin: Origin): Promise<Organization> {
    const organization = await this.#catalog.organizations.setStatus(organizationId, 'active', origin);
    for (const { id } of await this.#clonesIn(organizationId, 'suspended'))
      await this.#catalog.organizations.setStatus(id, 'active', origin);
    return organization;
  }

  /**
   * Changes some of its limits, and those of its clones. @returns the organization as it is now
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async setLimits(organizationId: string, changes: Partial<OrganizationLimits>, origin: Origin): Promise<Organization> {
    const organization = await this.#catalog.organizations.setLimits(organizationId, changes, origin);
    const clones = await Promise.all(CLONE_STATUSES.map((status) => this.#clonesIn(organizationId, status)));
    for (const { id } of clones.flat()) await this.#catalog.organizations.setLimits(id, changes, origin);
    return organization;
  }

  /**
   * Has its clients wait for backends until {@link unpause}. Transactions that run go on, and lose their backend when they end.
   * @returns false if an operator has paused it already
   * @throws ServiceError `not_found`; `invalid_request` if it is not in use; `organization_busy` while it is cloned or moved
   */
  async pause(organizationId: string, origin: Origin): Promise<boolean> {
    const pause = { organizationId, token: OPERATOR_PAUSE };
    try {
      await this.#catalog.pauses.begin(pause, UNTIL_ENDED_MS);
    } catch (error) {
      if (await this.#catalog.pauses.isInForce(pause)) return false;
      throw error;
    }
    this.record(organizationId, 'organization.paused', origin);
    return true;
  }

  /** Ends the pause of an operator. @returns whether there was one @throws ServiceError `not_found` */
  async unpause(organizationId: string, origin: Origin): Promise<boolean> {
    const ended = await this.#catalog.pauses.end({ organizationId, token: OPERATOR_PAUSE });
    if (ended) this.record(organizationId, 'organization.unpaused', origin);
    return ended;
  }

  /** Records in the organization's audit log what an operator has done to its sessions. */
  record(organizationId: string, action: 'organization.paused' | 'organization.unpaused' | 'sessions.end', origin: Origin): void {
    this.#catalog.audit.append({ organizationId, action, origin, actor: undefined, outcome: DONE });
  }

  /**
   * Removes an organization with its data, role and keys; its audit log is kept. May be repeated until it has succeeded. If
   * processes have not ended, the status is `dropping` until they have and {@link finishDrops} is called.
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async drop(organizationId: string, origin: Origin): Promise<Changed> {
    return this.#finishDrop(await this.#catalog.organizations.setStatus(organizationId, 'dropping', origin), origin);
  }

  /**
   * As {@link drop}, for a caller with a key, who cannot ask again. What cannot be done now is observed, and done by
   * {@link finishDrops}.
   */
  async dropAsAsked({ organization: { id }, key }: Tenant, origin: Origin, observe: Observe): Promise<Organization> {
    const actor = { keyId: key.id, keyPrefix: key.prefix };
    return this.#tryToFinish(await this.#catalog.organizations.setStatus(id, 'dropping', origin, actor), origin, observe, actor);
  }

  async #finishDrop(organization: Organization, origin: Origin, actor?: KeyActor): Promise<Changed> {
    const { id, placement } = organization;
    try {
      const move = await this.#catalog.moves.find(id);
      if (move !== undefined) await this.#clusters.removeCopy(move.other, placement);
      await this.#clusters.deprovision(placement);
    } catch (error) {
      if (error instanceof StillRunningError) return { organization, running: error.message };
      throw error;
    }
    return { organization: await this.#catalog.organizations.setStatus(id, 'dropped', origin, actor) };
  }

  /**
   * Completes interrupted drops. One that cannot be completed now is reported and tried again at the next call. Those on a cluster that
   * does not answer are left for later.
   */
  async finishDrops(origin: Origin, observe: Observe): Promise<void> {
    const dropping = await this.#catalog.organizations.list({ status: 'dropping' });
    const onOne = async (cluster: string) => {
      for (const organization of dropping.filter(({ placement }) => placement.cluster === cluster)) {
        if (this.#clusters.up.has(cluster)) await this.#tryToFinish(organization, origin, observe);
      }
    };
    await Promise.all([...new Set(dropping.map(({ placement }) => placement.cluster))].map(onOne));
  }

  async #tryToFinish(dropping: Organization, origin: Origin, observe: Observe, actor?: KeyActor): Promise<Organization> {
    const { id } = dropping;
    try {
      const { organization, running } = await this.#finishDrop(dropping, origin, actor);
      if (running === undefined) this.#waitedFor.delete(id);
      else this.#waitFor(id, running, observe);
      return organization;
    } catch (cause) {
      observe({ name: 'service.failure', message: `organization ${id} could not be dropped yet`, cause });
      return dropping;
    }
  }

  #waitFor(id: string, running: string, observe: Observe): void {
    if (this.#waitedFor.has(id)) return;
    this.#waitedFor.add(id);
    observe({ name: 'service.warning', message: `organization ${id} is dropped as soon as this has ended: ${running}` });
  }

  /**
   * Issues an admin key to an organization that has lost its own. Its other admin keys become invalid, and sessions opened with them end.
   * @returns the key in clear text, which is shown once and stored nowhere
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async issueKey(organizationId: string, origin: Origin): Promise<string> {
    const known = await this.#catalog.findByOrganization(organizationId);
    const { apiKey, record } = await mintKey(known?.salt);
    await this.#catalog.keys.issue(organizationId, record, origin);
    return apiKey;
  }
}
