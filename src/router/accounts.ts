import { randomBytes, randomInt } from 'node:crypto';
import { deriveVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from '../auth/scram.ts';
import { apiKeyPrefix, digestApiKey, generateApiKey, isWellFormedInvitation, rateLimitAddress } from '../auth/tokens.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { SaltOfKeys } from '../catalog/credentials.ts';
import { type ApiKey, type KeyDetails, type NewApiKey, RESTRICTED_SCOPES } from '../catalog/key-rows.ts';
import type { RotatedKey } from '../catalog/keys.ts';
import type { Organization, Placement } from '../catalog/organization.ts';
import { inviteInvalid, type SignUp, type SignupQuota } from '../catalog/sign-ups.ts';
import { ServiceError } from '../errors.ts';
import type { Observe, Origin } from '../observation.ts';
import { ownPlacement } from '../placement/restricted-roles.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { Clusters, NewPlacements } from './clusters.ts';
import type { Tenant } from './lease.ts';
import { ClusterDownError } from './served-cluster.ts';

export interface SignedUp {
  readonly organization: Organization;
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  readonly keyId: string;
  /** Undefined if sign-ups are not limited. */
  readonly quota: SignupQuota | undefined;
}

interface SignUpRequest {
  readonly orgName: string;
  readonly email: string;
  /** An invitation's token; it counts only where one is needed. */
  readonly invite?: string | undefined;
}

/** The steps in which an organization is made that nobody has signed up. */
interface MakeSteps {
  placementFor(id: string): Placement;
  /** Records it as `provisioning`. */
  record(made: Pick<SignUp, 'id' | 'placement' | 'key'>): Promise<void>;
  provision(placement: Placement): Promise<void>;
  /** Opens it for logins. */
  activate(id: string): Promise<Organization>;
}

interface SignUpsOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly placements: NewPlacements;
  /** Who may sign up: anybody, who has an invitation, or nobody. */
  readonly mode: 'open' | 'invite' | 'closed';
  /** The limit for one address; undefined: none. */
  readonly signupsPerHour: number | undefined;
  readonly observe: Observe;
}

/** Creates organizations, each with a database or schema. A sign-up that fails is undone. */
export class SignUps {
  readonly #catalog: Catalog;
  readonly #clusters: Clusters;
  readonly #placements: NewPlacements;
  /** Operators may change it. */
  readonly #policy: Pick<SignUpsOptions, 'mode' | 'signupsPerHour'>;
  readonly #observe: Observe;
  readonly #refused = new SignUpLimitCache();
  /** Ids of sign-ups that have not been answered yet. */
  readonly #underWay = new Set<string>();
  /** Those of them that have failed, and that their server may still be working on. */
  readonly #ending = new Set<string>();
  /** Ids of failed sign-ups, perhaps already active, that the control database still records as this process's. */
  readonly #abandoned = new Set<string>();

  constructor(options: SignUpsOptions) {
    const { catalog, clusters, placements, observe } = options;
    this.#policy = options;
    this.#catalog = catalog;
    this.#clusters = clusters;
    this.#placements = placements;
    this.#observe = observe;
  }

  /**
   * Creates an organization with its database or schema and its first key. If a cluster fails, it is created on another one.
   * @throws ServiceError `signup_closed`, `invite_required`, `invite_invalid`, `rate_limited`, `email_taken`, `not_ready`
   */
  async create(request: SignUpRequest, origin: Origin): Promise<SignedUp> {
    const invitation = this.#invitation(request.invite);
    this.#refused.check(origin.sourceIp);
    const choice = this.#placements.choose();
    let counted: Pick<SignedUp, 'quota'> | undefined;
    for (;;) {
      const id = newOrganizationId();
      const placement = await choice.placementFor(id);
      const { apiKey, record } = await mintKey();
      const signUp = { id, name: request.orgName, email: request.email, placement, key: record, invitation };
      this.#underWay.add(id);
      try {
        // The attempt counts once.
        const recorded = await this.#record({ ...signUp, signupsPerHour: counted ? undefined : this.#policy.signupsPerHour }, origin);
        counted ??= recorded;
        const organization = await this.#complete(id, placement, async () => {
          await this.#provision(id, placement);
          return this.#catalog.signUps.activate(id, origin);
        });
        return { organization, apiKey, keyId: record.id, quota: counted.quota };
      } catch (error) {
        if (!(await choice.mayGoElsewhere(placement, error))) throw error;
      } finally {
        if (!this.#ending.has(id)) this.#underWay.delete(id);
      }
    }
  }

  /** Makes an organization that nobody has signed up. If a step fails, what there is of it is removed. */
  async make({ placementFor, record, provision, activate }: MakeSteps): Promise<Omit<SignedUp, 'quota'>> {
    const id = newOrganizationId();
    const placement = placementFor(id);
    const { apiKey, record: key } = await mintKey();
    this.#underWay.add(id);
    try {
      await record({ id, placement, key });
      const organization = await this.#complete(id, placement, async () => {
        await provision(placement);
        return activate(id);
      });
      return { organization, apiKey, keyId: key.id };
    } finally {
      if (!this.#ending.has(id)) this.#underWay.delete(id);
    }
  }

  /** Undoes interrupted sign-ups of this and other processes. Their keys were never sent to anybody. */
  async undoInterrupted(): Promise<void> {
    for (const id of this.#abandoned) await this.#abandon(id);
    const interrupted = await this.#catalog.signUps.takeInterrupted(this.#underWay);
    const onOne = async (cluster: string) => {
      for (const { id, placement } of interrupted) if (placement.cluster === cluster) await this.#undo(id, placement, undefined);
    };
    await Promise.all([...new Set(interrupted.map(({ placement }) => placement.cluster))].map(onOne));
  }

  async #complete(id: string, placement: Placement, work: () => Promise<Organization>): Promise<Organization> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ClusterDownError) this.#undoWhenEnded(id, placement, error);
      else await this.#giveUp(id, placement, error);
      throw error;
    }
  }

  /** The server may still do what it has been asked to. */
  #undoWhenEnded(id: string, placement: Placement, error: ClusterDownError): void {
    this.#ending.add(id);
    const undo = async () => {
      await this.#giveUp(id, placement, error);
      this.#ending.delete(id);
      this.#underWay.delete(id);
    };
    void error.ended.then(undo);
  }

  async #giveUp(id: string, placement: Placement, error: unknown): Promise<void> {
    // It may be active nevertheless, if only the answer was lost.
    this.#abandoned.add(id);
    await this.#undo(id, placement, error);
  }

  async #provision(id: string, placement: Placement): Promise<void> {
    try {
      await this.#clusters.provision(placement);
    } catch (error) {
      // What was begun there cannot be undone before the server answers.
      if (error instanceof ServiceError && error.kind === 'not_ready') await this.#catalog.signUps.release(id);
      throw error;
    }
  }

  /** @returns the digest of the invitation, where one is needed */
  #invitation(invite: string | undefined): Buffer | undefined {
    const { mode } = this.#policy;
    if (mode === 'open') return undefined;
    if (mode === 'closed') {
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
      return await this.#clusters.default.locks.retryWhenFull(() => this.#catalog.signUps.record(signUp, origin));
    } catch (error) {
      this.#refused.remember(origin.sourceIp, error);
      throw error;
    }
  }

  async #abandon(id: string): Promise<void> {
    await this.#catalog.signUps.abandon(id);
    this.#abandoned.delete(id);
  }

  async #undo(id: string, placement: Placement, cause: unknown): Promise<void> {
    try {
      if (this.#abandoned.has(id)) await this.#abandon(id);
      await this.#clusters.deprovision(placement);
      await this.#catalog.signUps.delete(id);
    } catch (error) {
      this.#observe({ name: 'service.failure', message: `sign-up ${id} could not be undone yet`, cause: cause ?? error });
    }
  }
}

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
    const { organization } = tenant;
    // The key itself may be used as one of the readers, if the organization is over its quota.
    const restricted = RESTRICTED_SCOPES.find((scope) => scope === details.scope);
    if (restricted !== undefined) await this.#clusters.admit(ownPlacement(organization.placement), restricted);
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

interface MintedKey {
  /** The key in clear text, which is shown once and stored nowhere. */
  readonly apiKey: string;
  /** The part that is stored. */
  readonly record: NewApiKey;
}

/** @param like the salt and iterations of the organization's keys; undefined: it has none yet */
export async function mintKey(like?: SaltOfKeys): Promise<MintedKey> {
  const apiKey = generateApiKey();
  const { salt, iterations } = like ?? { salt: randomBytes(SCRAM_SALT_BYTES), iterations: SCRAM_ITERATIONS };
  const verifier = await deriveVerifier(apiKey, salt, iterations);
  return { apiKey, record: { id: newKeyId(), prefix: apiKeyPrefix(apiKey), digest: digestApiKey(apiKey), verifier } };
}

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';
const LENGTH = 12;

/** `org_` and 12 of `[a-z0-9]` (62 bits). It needs no quotes in SQL and reveals nothing about the organization. */
export function newOrganizationId(): string {
  return `org_${random()}`;
}

/** `key_` and 12 of `[a-z0-9]`. */
function newKeyId(): string {
  return `key_${random()}`;
}

function random(): string {
  return Array.from({ length: LENGTH }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
}

/** After this time the control database, which counts for all processes, is asked again. */
const REMEMBERED_MS = 10_000;
/** How many addresses are remembered. Beyond that the oldest is forgotten, so that an attacker cannot fill the memory. */
const MAX_ADDRESSES = 10_000;

/**
 * Addresses that have used up their sign-ups of the hour. Further attempts are refused from memory, without a session of the
 * control database, which has few and needs them for logins.
 */
export class SignUpLimitCache {
  readonly #now: () => number;
  readonly #refusals = new BoundedMap<string, { readonly error: ServiceError; readonly at: number }>({ maxEntries: MAX_ADDRESSES });

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws ServiceError `rate_limited`, the remembered one, with the remaining time */
  check(sourceIp: string): void {
    const refusal = this.#refusals.get(rateLimitAddress(sourceIp));
    if (refusal === undefined) return;
    const { error, at } = refusal;
    const passedMs = this.#now() - at;
    const retryAfterS = Math.ceil((error.retryAfterS ?? 0) - passedMs / 1_000);
    if (passedMs < REMEMBERED_MS && retryAfterS > 0)
      throw new ServiceError(error.kind, error.message, { retryAfterS, ...(error.hint === undefined ? {} : { hint: error.hint }) });
  }

  /** @param error the error of a sign-up from there; only `rate_limited` is remembered */
  remember(sourceIp: string, error: unknown): void {
    if (!(error instanceof ServiceError) || error.kind !== 'rate_limited') return;
    this.#refusals.set(rateLimitAddress(sourceIp), { error, at: this.#now() });
  }
}
