import { channelSecret, channelsOf } from '../auth/derived-secrets.ts';
import { deriveVerifier, mockVerifiers, SCRAM_ITERATIONS, type ScramOffer, type ScramVerifier, sha256 } from '../auth/scram.ts';
import { digestApiKey, inNetworks, isWellFormedApiKey, parseAddress } from '../auth/tokens.ts';
import { restrictedPool } from '../backend/organization-pool.ts';
import { OPERATORS } from '../catalog/audit/records.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { FormerKey, KeyEnd, Credential as KnownCredential } from '../catalog/credentials.ts';
import { RESTRICTED_SCOPES, type RestrictedScope } from '../catalog/key-rows.ts';
import type { Organization } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Actor, Observe, Origin } from '../observation.ts';
import { asRestricted } from '../placement/restricted-roles.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { Clusters } from './clusters.ts';
import type { Tenant } from './lease.ts';

/** What a client authenticates with. */
type Credential =
  /** The API key alone, as HTTP's bearer token. */
  | { readonly kind: 'bearer'; readonly apiKey: string }
  /** Organization and API key in clear text, as a wire client sends them inside TLS or on a WebSocket. */
  | { readonly kind: 'password'; readonly user: string; readonly apiKey: string }
  /** A SCRAM exchange, which the caller runs. */
  | { readonly kind: 'scram'; readonly user: string; readonly exchange: ScramExchange };

/**
 * @param former stored keys of former passwords, as in {@link ScramOffer}
 * @returns the stored key of the key, or of the former one, that the client proved to know
 */
type ScramExchange = (verifiers: ScramOffer['verifiers'], former: readonly Buffer[]) => Promise<Buffer | undefined>;

interface AuthenticatorOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly secret: Buffer;
  readonly observe: Observe;
  /** Of the operator's key; undefined: there is none. */
  readonly operator?: ScramVerifier | undefined;
  /** A text that reached the server in the `schema` placement as its client wrote it: the rewriter's, which lies above. */
  readonly clientText: (text: string, schema: string) => string;
}

/** The user of the console for operators. */
export const OPERATOR = OPERATORS;

/** The verifier of the operator's key. Its salt is the one that the user `operator` seems to have anyway. */
export function operatorVerifier(key: string, secret: Buffer): Promise<ScramVerifier> {
  return deriveVerifier(key, mockVerifiers(OPERATOR, secret)[0].salt, SCRAM_ITERATIONS);
}

/** Finds the tenant of a credential, for both doors. */
export class Authenticator {
  readonly #catalog: Catalog;
  readonly #clusters: Clusters;
  readonly #clientText: AuthenticatorOptions['clientText'];
  readonly #operator: ScramVerifier | undefined;
  readonly #secret: Buffer;
  /** The secret that channel prefixes are derived from. */
  readonly #channels: Buffer;
  readonly #observe: Observe;
  readonly #throttle = new LoginThrottle();
  /** Counts failures with former keys. These do not lock out the right key; the count limits how many the audit log records. */
  readonly #formerKeyUse = new LoginThrottle();
  /** The organizations as restricted roles see them. */
  readonly #asRestricted: Readonly<Record<RestrictedScope, WeakMap<Organization, Organization>>> = {
    read: new WeakMap(),
    data: new WeakMap(),
  };
  /** One tenant for all clients with the same key. */
  readonly #tenants = new WeakMap<KnownCredential, Tenant>();

  constructor({ catalog, clusters, secret, observe, operator, clientText }: AuthenticatorOptions) {
    this.#operator = operator;
    this.#catalog = catalog;
    this.#clusters = clusters;
    this.#clientText = clientText;
    this.#secret = secret;
    this.#channels = channelSecret(secret.toString());
    this.#observe = observe;
    catalog.failures.listen('login', (key, count) => this.#throttle.failedElsewhere(key, count));
  }

  /**
   * @throws ServiceError `unauthorized` (also for an organization that does not exist), `too_many_login_failures`,
   * `organization_suspended`, `not_allowed` from a network that the key may not be used from
   */
  async authenticate(credential: Credential, origin: Origin): Promise<Tenant> {
    const user = credential.kind === 'bearer' ? undefined : credential.user;
    try {
      const known = await this.#prove(credential);
      if (known === undefined || (user !== undefined && organizationIdOf(known) !== user)) throw this.#unproven(user, origin);
      if ('endedAt' in known) throw new FormerKeyError(known);
      const tenant = this.#admit(known, origin);
      this.#catalog.touchKey(known.key.id);
      return tenant;
    } catch (error) {
      if (error instanceof ServiceError) this.#loginFailed(error, user, origin);
      throw error;
    }
  }

  /**
   * Has a client prove that it knows the operator's key. A client that does not sees what it would see if there were no such key.
   * @throws ServiceError `unauthorized`, `too_many_login_failures`
   */
  async authenticateOperator(exchange: ScramExchange, origin: Origin): Promise<void> {
    const verifier = this.#operator;
    const [first, ...others] = mockVerifiers(OPERATOR, this.#secret);
    try {
      const proven = await exchange([verifier ?? first, ...others], []);
      if (proven === undefined || proven !== verifier?.storedKey) throw this.#unproven(OPERATOR, origin);
    } catch (error) {
      if (error instanceof ServiceError) this.#loginFailed(error, OPERATOR, origin);
      throw error;
    }
  }

  #unproven(user: string | undefined, { sourceIp }: Origin): ServiceError {
    const refusal = user === undefined ? undefined : this.#throttle.refusal(sourceIp, user);
    return refusal ?? unproven(user);
  }

  #loginFailed(error: ServiceError, user: string | undefined, origin: Origin): void {
    const { kind, sqlstate } = error;
    let actor: Actor | undefined;
    if (error instanceof FormerKeyError) actor = this.#formerKeyUsed(error.key, origin);
    else if (user !== undefined) {
      actor = { organizationId: user };
      if (kind === 'unauthorized') this.#catalog.failures.happened('login', this.#throttle.failed(origin.sourceIp, user));
    }
    this.#observe({ name: 'login.failed', origin, kind, sqlstate, ...(actor === undefined ? {} : { actor }) });
  }

  /** @returns the actor for the audit log; undefined when it already has many such failures from that address */
  #formerKeyUsed({ id, organizationId, prefix }: FormerKey, { sourceIp }: Origin): Actor | undefined {
    if (this.#formerKeyUse.isFull(sourceIp, organizationId)) return undefined;
    this.#formerKeyUse.failed(sourceIp, organizationId);
    return { organizationId, keyId: id, keyPrefix: prefix };
  }

  /**
   * The tenant of a key, if it is in memory and may be used from there; otherwise undefined, and {@link authenticate} has to be called.
   * @param digest as of `digestText`
   * @param sourceIp called if the key may not be used from everywhere
   */
  recognize(digest: string, sourceIp: () => string): Tenant | undefined {
    const known = this.#catalog.knownByDigest(digest);
    if (known === undefined || known.organization.status !== 'active' || known.revoked.aborted) return undefined;
    const tenant = this.#tenantOf(known);
    if (tenant.mayComeFrom !== undefined && !tenant.mayComeFrom(sourceIp())) return undefined;
    this.#catalog.touchKey(known.key.id);
    return tenant;
  }

  /** Whether it is known from memory that there is no such key. @param digest of the key, as of `digestText` */
  isInvalid(apiKey: string, digest: string): boolean {
    return !isWellFormedApiKey(apiKey) || this.#catalog.isUnknownDigest(digest);
  }

  /** The tenant of the same key, after the organization has been moved. */
  async renew({ organization, key }: Tenant): Promise<Tenant | undefined> {
    const known = await this.#catalog.findByOrganization(organization.id);
    const same = known?.live.find(({ key: { id } }) => id === key.id);
    return same && this.#tenantOf(same);
  }

  #prove(credential: Credential): Promise<KnownCredential | FormerKey | undefined> {
    return credential.kind === 'scram' ? this.#proveByScram(credential) : this.#findByKey(credential.apiKey);
  }

  /** Finds a key by its SHA-256 digest. A key has too many random bits to be guessed, so no slower hash is needed. */
  async #findByKey(apiKey: string): Promise<KnownCredential | FormerKey | undefined> {
    // A text without the form of a key needs no look-up.
    return isWellFormedApiKey(apiKey)
      ? this.#clusters.default.locks.retryWhenFull(() => this.#catalog.findByDigest(digestApiKey(apiKey)))
      : undefined;
  }

  async #proveByScram({ user, exchange }: Extract<Credential, { kind: 'scram' }>): Promise<KnownCredential | FormerKey | undefined> {
    const known = await this.#clusters.default.locks.retryWhenFull(() => this.#catalog.findByOrganization(user));
    // For users who exist too, so that the time does not tell who does.
    const mocks = mockVerifiers(user, this.#secret);
    const { live = [], former = [], salt = {} } = known ?? {};
    const [first, ...others] = live.map(({ key }) => key.verifier);
    const proven = await exchange(
      first === undefined ? [{ ...mocks[0], ...salt }, ...mocks.slice(1)] : [first, ...others],
      former.map(({ storedKey }) => storedKey),
    );
    if (proven === undefined) return undefined;
    return live.find(({ key }) => key.verifier.storedKey === proven) ?? former.find(({ storedKey }) => storedKey === proven);
  }

  #admit(known: KnownCredential, { sourceIp }: Origin): Tenant {
    const { organization, revoked } = known;
    if (organization.status === 'suspended') {
      throw new ServiceError('organization_suspended', `organization "${organization.id}" is suspended`);
    }
    if (organization.status !== 'active') throw new ServiceError('unauthorized', 'the API key is not valid');
    revoked.throwIfAborted();
    const tenant = this.#tenantOf(known);
    if (tenant.mayComeFrom?.(sourceIp) === false) throw new ServiceError('not_allowed', `this API key may not be used from ${sourceIp}`);
    return tenant;
  }

  #seenBy(organization: Organization, scope: RestrictedScope): Organization {
    const known = this.#asRestricted[scope].get(organization);
    if (known !== undefined) return known;
    const seen: Organization = {
      ...organization,
      // It may be moved.
      get placement() {
        return asRestricted(organization.placement, scope);
      },
      get limits() {
        return organization.limits;
      },
      get diskState() {
        return organization.diskState;
      },
    };
    this.#asRestricted[scope].set(organization, seen);
    return seen;
  }

  #tenantOf(known: KnownCredential): Tenant {
    let tenant = this.#tenants.get(known);
    if (tenant === undefined) {
      const { key, revoked } = known;
      const restricted = known.organization.diskState === 'read_only' ? 'read' : RESTRICTED_SCOPES.find((scope) => scope === key.scope);
      const organization = restricted === undefined ? known.organization : this.#seenBy(known.organization, restricted);
      const pool = restricted === undefined ? organization.id : restrictedPool(organization.id, restricted);
      const role = restricted ?? 'own';
      const channels = channelsOf(this.#channels, known.organization.placement.role);
      const clusters = this.#clusters;
      tenant = {
        organization,
        pool,
        limitsId: organization.sourceId ?? organization.id,
        key,
        mayComeFrom: addressCheck(key.networks),
        channels,
        totals: this.#catalog.usage.counters.totalsOf(organization.id),
        statements: this.#catalog.queryStatistics.of(organization, role, (sql) => this.#asWritten(sql, organization)),
        revoked,
        get pgNotify() {
          return clusters.up.get(organization.placement.cluster)?.pgNotify;
        },
        get isHardened() {
          return clusters.up.get(organization.placement.cluster)?.isHardened ?? false;
        },
        get hasPreparedTransactions() {
          return clusters.up.get(organization.placement.cluster)?.hasPreparedTransactions ?? true;
        },
      };
      this.#tenants.set(known, tenant);
    }
    return tenant;
  }

  /** In the `schema` placement a statement of the wire door is known as it reached the server. */
  #asWritten(sql: string, { placement: { kind, schema } }: Organization): string {
    return kind === 'schema' ? this.#clientText(sql, schema) : sql;
  }
}

function addressCheck(networks: readonly string[] | null): Tenant['mayComeFrom'] {
  if (networks === null) return undefined;
  const isInside = inNetworks(networks);
  return (text) => {
    const address = parseAddress(text);
    return address !== undefined && isInside(address);
  };
}

function organizationIdOf(known: KnownCredential | FormerKey): string {
  return 'endedAt' in known ? known.organizationId : known.organization.id;
}

function unproven(user: string | undefined): ServiceError {
  return new ServiceError(
    'unauthorized',
    user === undefined ? 'the API key is not valid' : `password authentication failed for user "${user}"`,
  );
}

const MAX_FAILURES = 10;
const WINDOW_MS = 150_000;
/** How many pairs are remembered. Beyond that the oldest is forgotten, so that an attacker cannot fill the memory. */
const MAX_PAIRS = 100_000;
const DIGEST_CHARACTERS = 22;

/**
 * Counts failed logins of each client address and organization. After ten in 150 s a wrong credential gets another error, which says when to
 * try again, and the right one still logs in: behind a balancer all clients have one address. A key has too many random bits to be guessed.
 * Other addresses and other organizations are not affected.
 */
export class LoginThrottle {
  readonly #now: () => number;
  readonly #failures = new BoundedMap<string, readonly number[]>({ maxEntries: MAX_PAIRS });

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @returns what a wrong credential is answered instead if there have been too many, `too_many_login_failures` */
  refusal(sourceIp: string, user: string): ServiceError | undefined {
    if (this.#failures.size === 0) return undefined;
    const recent = this.#recent(pair(sourceIp, user));
    if (recent.length < MAX_FAILURES) return undefined;
    const waitMs = (recent[0] ?? 0) + WINDOW_MS - this.#now();
    return new ServiceError('too_many_login_failures', 'too many failed login attempts', {
      hint: 'Wait a few minutes, then try again with the right key.',
      retryAfterS: Math.max(1, Math.ceil(waitMs / 1_000)),
    });
  }

  isFull(sourceIp: string, user: string): boolean {
    return this.#recent(pair(sourceIp, user)).length >= MAX_FAILURES;
  }

  /** @returns the key for {@link failedElsewhere} in other processes */
  failed(sourceIp: string, user: string): string {
    const key = pair(sourceIp, user);
    this.failedElsewhere(key, 1);
    return key;
  }

  failedElsewhere(key: string, count: number): void {
    const failures = Array.from({ length: Math.min(count, MAX_FAILURES) }, () => this.#now());
    this.#failures.set(key, [...this.#recent(key), ...failures].slice(-MAX_FAILURES));
  }

  #recent(key: string): number[] {
    const since = this.#now() - WINDOW_MS;
    return (this.#failures.get(key) ?? []).filter((at) => at > since);
  }
}

/** A digest: other processes are told of it, and whatever a client sends as its user must not be long then. */
function pair(sourceIp: string, user: string): string {
  return sha256(Buffer.from(`${sourceIp} ${user}`))
    .toString('base64url')
    .slice(0, DIGEST_CHARACTERS);
}

const ENDS: Readonly<Record<KeyEnd, readonly [message: string, hint: string]>> = {
  rotated: ['was rotated', 'Use the new key. It was shown once, when this one was rotated.'],
  revoked: ['was revoked', 'Use another key of the organization.'],
  expired: ['expired', 'Use another key of the organization.'],
};

/** A client used a key that is no longer valid. Only a client that has sent it, or proved to have it, gets this error. */
class FormerKeyError extends ServiceError {
  readonly key: FormerKey;

  constructor(key: FormerKey) {
    const [message, hint] = ENDS[key.end];
    super('unauthorized', `this API key ${message} at ${key.endedAt.toISOString()}`, { hint });
    this.key = key;
  }
}
