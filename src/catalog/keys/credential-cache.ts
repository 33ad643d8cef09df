import { setMaxListeners } from 'node:events';
import { ServiceError } from '../../errors.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { OrganizationStatus } from '../organizations/organization.ts';
import type { Credential, FormerKey } from './credential.ts';
import { CredentialIndex, type Entry } from './credential-index.ts';
import type { KeyState, LiveKey } from './live-key.ts';

const UNKNOWN_MAX = 10_000;
const UNKNOWN_TTL_MS = 2_000;

type Load<Found = LiveKey> = () => Promise<Found | undefined>;

/** A name that was looked up and has no live key; remembered for a short time. */
interface Unknown {
  readonly until: number;
  readonly former: FormerKey | undefined;
}

/** The changes during a load, whose result may be older than they are. */
interface Watch {
  everything: boolean;
  readonly revisions: Map<string, number>;
}

/**
 * Live credentials in memory. They are used as long as the process is notified of changes ({@link CredentialCache.trust}).
 * While it may not be, every look-up reads the control database; credentials that are in use stay the same objects.
 */
export class CredentialCache {
  readonly #index = new CredentialIndex();
  /** Bounded, because clients may send any number of random keys. */
  readonly #unknown = new BoundedMap<string, Unknown>({ maxEntries: UNKNOWN_MAX });
  readonly #loading = new Map<string, Promise<Credential | FormerKey | undefined>>();
  readonly #watches = new Set<Watch>();
  #trusted = false;
  /** How often {@link distrust} was called. */
  #distrusts = 0;

  /** The credential in memory, if it is known to be up to date. */
  knownByDigest(digest: string): Credential | undefined {
    return this.#trusted ? this.#index.get(CredentialIndex.digestName(digest))?.credential : undefined;
  }

  /** Whether a recent look-up found neither a live nor a former key. */
  isUnknownDigest(digest: string): boolean {
    const unknown = this.#trusted ? this.#unknown.get(CredentialIndex.digestName(digest)) : undefined;
    return unknown !== undefined && unknown.former === undefined && unknown.until > performance.now();
  }

  findByDigest(digest: Buffer, load: Load<LiveKey | FormerKey>): Promise<Credential | FormerKey | undefined> {
    return this.#find(CredentialIndex.digestName(digest), load);
  }

  async findByOrganization(id: string, load: Load): Promise<Credential | undefined> {
    const found = await this.#find(id, load);
    return found !== undefined && 'revoked' in found ? found : undefined;
  }

  /** From now on notifications of changes may be missed. */
  distrust(): void {
    this.#trusted = false;
    this.#distrusts += 1;
  }

  /**
   * Notifications arrive again. The present state is read now, and counts even where its revision is older than the known one:
   * a control database may have been restored without its last changes.
   * @param read returns the states of organizations; those it leaves out do not exist
   */
  async trust(read: (organizationIds: readonly string[]) => Promise<readonly KeyState[]>): Promise<void> {
    const distrusts = this.#distrusts;
    for (const watch of this.#watches) watch.everything = true;
    const before = this.#index.revisions();
    const states = new Map((await read([...before.keys()])).map((state) => [state.organizationId, state]));
    for (const [organizationId, revision] of before) {
      const state = states.get(organizationId) ?? { organizationId, revision: Number.MAX_SAFE_INTEGER, status: 'dropped', keyId: '' };
      if (this.#index.get(organizationId)?.revision === revision) this.#settle(state);
      // A notification has arrived since the read began.
      else this.#apply(state);
    }
    this.#trusted = this.#distrusts === distrusts;
  }

  /** Called when an organization's key or status has changed to this state. */
  changed(state: KeyState): void {
    this.#announce(state);
    this.#unknown.clear();
    this.#apply(state);
  }

  /** Updates the time of a credential's last use. */
  used(organizationId: string, keyId: string, at: Date): void {
    const key = this.#index.get(organizationId)?.key;
    if (key?.id === keyId) key.lastUsedAt = at;
  }

  #find(name: string, load: Load<LiveKey | FormerKey>): Promise<Credential | FormerKey | undefined> {
    if (!this.#trusted) return this.#load(name, load);
    const entry = this.#index.get(name);
    if (entry !== undefined) return Promise.resolve(entry.credential);
    const unknown = this.#unknown.get(name);
    if (unknown !== undefined && unknown.until > performance.now()) return Promise.resolve(unknown.former);
    const loading = this.#loading.get(name) ?? this.#load(name, load).finally(() => this.#loading.delete(name));
    this.#loading.set(name, loading);
    return loading;
  }

  async #load(name: string, load: Load<LiveKey | FormerKey>): Promise<Credential | FormerKey | undefined> {
    for (;;) {
      const watch: Watch = { everything: false, revisions: new Map() };
      this.#watches.add(watch);
      try {
        const found = await load();
        if (found === undefined || 'rotatedAt' in found) {
          this.#unknown.set(name, { until: performance.now() + UNKNOWN_TTL_MS, former: found });
          return found;
        }
        const newer = watch.revisions.get(found.organization.id) ?? 0;
        if (!watch.everything && newer <= found.revision) return this.#adopt(found).credential;
      } finally {
        this.#watches.delete(watch);
      }
    }
  }

  /** @returns the one entry of a key that was read; the state that was read counts, as in {@link trust} */
  #adopt(found: LiveKey): Entry {
    const { organization, key, revision } = found;
    const state = { organizationId: organization.id, revision, status: organization.status, keyId: key.id };
    this.#announce(state);
    this.#settle(state);
    const kept = this.#index.get(organization.id);
    if (kept !== undefined) return kept;
    const entry = newEntry(found);
    this.#index.add(entry);
    return entry;
  }

  /** Tells running loads of the change, because their results may be older. */
  #announce({ organizationId, revision }: KeyState): void {
    for (const { revisions } of this.#watches) revisions.set(organizationId, Math.max(revision, revisions.get(organizationId) ?? 0));
  }

  /** As {@link #settle}, if the state is newer than the known one. */
  #apply(state: KeyState): void {
    const entry = this.#index.get(state.organizationId);
    if (entry !== undefined && entry.revision < state.revision) this.#settle(state);
  }

  /** Revokes the entry if the state contradicts it. */
  #settle({ organizationId, revision, status, keyId }: KeyState): void {
    const entry = this.#index.get(organizationId);
    if (entry === undefined) return;
    const { credential, controller } = entry;
    if (credential.key.id === keyId && credential.organization.status === status) {
      entry.revision = revision;
      return;
    }
    this.#index.delete(entry);
    controller.abort(credential.key.id === keyId ? refusal(organizationId, status) : rotated());
  }
}

function newEntry({ organization, key, digest, former, revision }: LiveKey): Entry {
  const controller = new AbortController();
  // Every session opened with the key adds a listener.
  setMaxListeners(0, controller.signal);
  if (organization.status !== 'active') controller.abort(refusal(organization.id, organization.status));
  const ownKey = { ...key };
  const credential = { organization, key: ownKey, former, revoked: controller.signal };
  return { credential, key: ownKey, controller, digestName: CredentialIndex.digestName(digest), revision };
}

function rotated(): ServiceError {
  return new ServiceError('key_revoked', 'terminating connection due to API key rotation');
}

function refusal(organizationId: string, status: OrganizationStatus): ServiceError {
  if (status === 'suspended') return new ServiceError('organization_suspended', `organization "${organizationId}" is suspended`);
  return new ServiceError('key_revoked', `terminating connection because organization "${organizationId}" is no longer active`);
}
