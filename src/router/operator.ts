import type { Catalog } from '../catalog/catalog.ts';
import type { Organization } from '../catalog/organization.ts';
import type { Observe, Origin } from '../observation.ts';
import { mintKey } from './mint-key.ts';
import type { Provisioner } from './placement/placement.ts';

/**
 * What those who run the service may do to organizations. Every change is told to all processes of the service, and stands
 * in the organization's audit log.
 */
export class Operator {
  readonly #catalog: Catalog;
  readonly #provisioner: Provisioner;

  constructor(catalog: Catalog, provisioner: Provisioner) {
    this.#catalog = catalog;
    this.#provisioner = provisioner;
  }

  /** All there are and were, in the order of their creation. */
  organizations(): Promise<Organization[]> {
    return this.#catalog.organizations();
  }

  /**
   * Ends the organization's sessions and refuses its key until it is resumed.
   * @throws ServiceError `not_found`, `invalid_request`
   */
  suspend(organizationId: string, origin: Origin): Promise<Organization> {
    return this.#catalog.setStatus(organizationId, 'suspended', origin);
  }

  /** @throws ServiceError `not_found`, `invalid_request` */
  resume(organizationId: string, origin: Origin): Promise<Organization> {
    return this.#catalog.setStatus(organizationId, 'active', origin);
  }

  /**
   * Removes an organization with its data, role and keys; its audit log is kept. May be repeated until it has succeeded.
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async drop(organizationId: string, origin: Origin): Promise<Organization> {
    const { placement } = await this.#catalog.setStatus(organizationId, 'dropping', origin);
    await this.#provisioner.deprovision(placement);
    return this.#catalog.setStatus(organizationId, 'dropped', origin);
  }

  /** Completes what was begun and cut short. One that cannot be completed now is told, and left for the next time. */
  async finishDrops(origin: Origin, observe: Observe): Promise<void> {
    for (const { id } of await this.#catalog.organizations({ status: 'dropping' })) {
      await this.drop(id, origin).catch((cause: unknown) => {
        observe({ name: 'service.failure', message: `organization ${id} could not be dropped yet`, cause });
      });
    }
  }

  /**
   * Gives an organization a key whose own is lost. The old one is dead, and the sessions end that were opened with it.
   * @returns the key in the clear: shown once, kept nowhere
   * @throws ServiceError `not_found`, `invalid_request`
   */
  async issueKey(organizationId: string, origin: Origin): Promise<string> {
    const known = await this.#catalog.findByOrganization(organizationId);
    const { apiKey, record } = await mintKey(known?.key.verifier);
    await this.#catalog.rotateKey(organizationId, undefined, record, origin);
    return apiKey;
  }
}
