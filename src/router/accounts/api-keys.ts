import type { Catalog } from '../../catalog/catalog.ts';
import type { ApiKey, KeyDetails } from '../../catalog/key-rows.ts';
import type { RotatedKey } from '../../catalog/keys.ts';
import { ServiceError } from '../../errors.ts';
import type { Origin } from '../../observation.ts';
import type { Clusters } from '../clusters/clusters.ts';
import type { Tenant } from '../tenant.ts';
import { mintKey } from './mint-key.ts';

/** A key in clear text, which is shown once and stored nowhere. */
interface Shown {
  readonly apiKey: string;
}

/** What an organization does with its keys, each time with one that has the scope `admin`. */
export class ApiKeys {
  readonly #catalog: Catalog;
  readonly #clusters: Clusters;

  constructor(catalog: Catalog, clusters: Clusters) {
    this.#catalog = catalog;
    this.#clusters = clusters;
  }

  /** The live keys, the oldest first. */
  list({ organization }: Tenant): Promise<readonly ApiKey[]> {
    return this.#catalog.keys.list(organization.id);
  }

  /** @throws ServiceError `too_many_keys`, `invalid_request` */
  async create(tenant: Tenant, details: KeyDetails, origin: Origin): Promise<Shown & { readonly key: ApiKey }> {
    checkScope(tenant);
    const { placement } = tenant.organization;
    if (details.scope === 'read') await this.#clusters.admitReaders(placement);
    const { apiKey, record } = await this.#mint(tenant);
    const key = await this.#clusters.default.locks.retryWhenFull(() =>
      this.#catalog.keys.create(changeBy(tenant, origin), record, details),
    );
    return { apiKey, key };
  }

  /**
   * Replaces a key. Without a grace period the old one is invalid in this process when this returns, and in others when they are notified.
   * @throws ServiceError `not_found`, `forbidden`, `too_many_keys`; `unauthorized` when the key that asks has been replaced meanwhile
   */
  async rotate(tenant: Tenant, keyId: string, graceS: number, origin: Origin): Promise<Shown & RotatedKey> {
    const { apiKey, record } = await this.#mint(tenant);
    const rotate = () => this.#catalog.keys.rotate(changeBy(tenant, origin), keyId, record, graceS);
    return { ...(await this.#clusters.default.locks.retryWhenFull(rotate)), apiKey };
  }

  /** @throws ServiceError `not_found`, `invalid_request` */
  update(tenant: Tenant, keyId: string, details: Partial<Omit<KeyDetails, 'scope'>>, origin: Origin): Promise<ApiKey> {
    return this.#clusters.default.locks.retryWhenFull(() => this.#catalog.keys.update(changeBy(tenant, origin), keyId, details));
  }

  /** @throws ServiceError `not_found`, `forbidden` */
  revoke(tenant: Tenant, keyId: string, origin: Origin): Promise<Date> {
    return this.#clusters.default.locks.retryWhenFull(() => this.#catalog.keys.revoke(changeBy(tenant, origin), keyId));
  }

  async #mint({ organization }: Tenant) {
    const known = await this.#clusters.default.locks.retryWhenFull(() => this.#catalog.findByOrganization(organization.id));
    return mintKey(known?.salt);
  }
}

function changeBy(tenant: Tenant, origin: Origin) {
  checkScope(tenant);
  return { organizationId: tenant.organization.id, actorKeyId: tenant.key.id, origin };
}

/** Every route says which scope it needs; here nothing is left to it. */
function checkScope({ key: { scope } }: Tenant): void {
  if (scope !== 'admin') throw new ServiceError('forbidden', 'the API key may not manage keys: its scope is not admin');
}
