import type { Organization } from '../catalog/organization.ts';
import type { Observe } from '../observation.ts';
import type { Router } from '../router/router.ts';
import type { Tenant } from '../router/tenant.ts';
import { IndexedSet } from '../runtime/indexed-set.ts';
import { Company, Seat } from './company.ts';
import { PreparedRun } from './prepared-run.ts';
import type { SharingLimits } from './sharing-rules.ts';
import { type QueryReply, type QueryRequest, runQuery, withHint } from './statement.ts';
import { type KnownStatement, StatementCache } from './statement-cache.ts';

const SHARED = { name: 'request.shared' } as const;
const SET_ASIDE = { name: 'request.set_aside' } as const;

/** So many of an organization's backends are looked at, the latest first, however many it may have. */
const ASKED = 16;

/** With less time than this a statement waits for nobody. */
const TIMEOUT_MIN_MS = 1_000;

/**
 * Runs statements for organizations, each on a backend of its own or, where as many backends are at work as is good for
 * anybody, a quick one behind others of its kind.
 */
export class Queries {
  readonly #router: Pick<Router, 'lease' | 'mayKeepBusy'>;
  readonly #limits: SharingLimits;
  readonly #observe: Observe;
  /** Those of each organization that one might get on with. */
  readonly #companies = new WeakMap<Organization, IndexedSet<Company>>();

  constructor(router: Pick<Router, 'lease' | 'mayKeepBusy'>, limits: SharingLimits, observe: Observe) {
    this.#router = router;
    this.#limits = limits;
    this.#observe = observe;
  }

  /** @throws as {@link Router.lease} and {@link runQuery} */
  run(tenant: Tenant, request: QueryRequest): Promise<QueryReply> {
    const known = this.#quick(tenant, request);
    if (known === undefined) return this.#runAlone(tenant, request);
    const company = this.#find(tenant, request, known);
    if (company === undefined) return this.#goAhead(tenant, request, known);
    this.#observe(SHARED);
    return this.#join(company, request, known);
  }

  /** @returns the statement, if it may share a backend with others */
  #quick({ organization }: Tenant, { sql, readOnly, timeoutMs }: QueryRequest): KnownStatement | undefined {
    if (readOnly || this.#limits.depth <= 1 || (timeoutMs > 0 && timeoutMs < TIMEOUT_MIN_MS)) return undefined;
    const known = StatementCache.of(organization).find(sql);
    return known?.pace?.isQuick ? known : undefined;
  }

  /** @returns where to get on; where there are several, with the fewest others */
  #find(tenant: Tenant, request: QueryRequest, known: KnownStatement): Company | undefined {
    const companies = this.#companiesOf(tenant);
    const { spread, depth } = this.#limits;
    const isAwaited = !this.#router.mayKeepBusy(tenant, true);
    if ((companies.size < spread && !isAwaited) || isCalledOff(tenant, request)) return undefined;
    const now = performance.now();
    let best: Company | undefined;
    for (let i = companies.size - 1; i >= Math.max(0, companies.size - ASKED); i -= 1) {
      const company = companies.at(i);
      if (company === undefined || company.load >= (best?.load ?? depth) || !company.isOpen(now)) continue;
      // Whoever waits for a backend has this one next, however many there are who could get on.
      if (isAwaited && company.seated >= depth) continue;
      if (known.pace?.mayFollow(company.load) && PreparedRun.isPossible(company.lease.backend, request, known)) best = company;
    }
    return best;
  }

  async #runAlone(tenant: Tenant, request: QueryRequest): Promise<QueryReply> {
    return runQuery(await this.#router.lease(tenant, { door: 'http', ...departureOf(request) }), request);
  }

  /** Goes ahead on a backend that others may come along on. */
  async #goAhead(tenant: Tenant, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    const lease = await this.#router.lease(tenant, { door: 'http', ...departureOf(request) });
    if (isCalledOff(tenant, request) || !PreparedRun.isPossible(lease.backend, request, known)) return runQuery(lease, request);
    const companies = this.#companiesOf(tenant);
    const company = new Company(lease, known.tempo, (closed) => companies.delete(closed));
    companies.add(company);
    return this.#join(company, request, known);
  }

  #join(company: Company, request: QueryRequest, known: KnownStatement): Promise<QueryReply> {
    const { backend, tenant } = company.lease;
    return new Promise((resolve, reject) => {
      const alone = () => this.#runAlone(tenant, request).then(resolve, reject);
      const seat = new Seat(company, request, () => {
        this.#observe(SET_ASIDE);
        void alone();
      });
      new PreparedRun(seat, request, known, {
        replied: resolve,
        failed: (error) => reject(withHint(error)),
        stale: () => {
          backend.session.unprepare(known.server);
          StatementCache.of(tenant.organization).forget(known);
          void seat.end();
          void alone();
        },
      }).start();
    });
  }

  #companiesOf({ organization }: Tenant): IndexedSet<Company> {
    let companies = this.#companies.get(organization);
    if (companies === undefined) {
      companies = new IndexedSet<Company>();
      this.#companies.set(organization, companies);
    }
    return companies;
  }
}

/** A session of its own tells why it is not run. */
function isCalledOff({ revoked }: Tenant, { departure }: QueryRequest): boolean {
  return revoked.aborted || departure?.hasHappened === true;
}

function departureOf({ departure }: QueryRequest) {
  return departure === undefined ? {} : { departure };
}
