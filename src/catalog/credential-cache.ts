import { setMaxListeners } from 'node:events';
import { ServiceError } from '../errors.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import {
  type Credential,
  type FormerKey,
  type KeyEnd,
  type KeyState,
  type LiveKey,
  type LiveKeys,
  type OrganizationCredentials,
  type ProvableFormerKey,
  type SaltOfKeys,
  stateOf,
} from './credentials.ts';
import type { ApiKey } from './key-rows.ts';
import type { DiskState } from './limits.ts';
import type { Organization, OrganizationStatus, Placement } from './organization.ts';

const UNKNOWN_MAX = 10_000;
const UNKNOWN_TTL_MS = 2_000;

/** The longest delay of a timer. */
const TIMER_MAX_MS = 2 ** 31 - 1;

type Load<Found = LiveKeys> = () => Promise<Found | undefined>;

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

/** Called with how long an organization is still paused; null: it is not. */
export type PauseListener = (organizationId: string, forMs: number | null) => void;

/**
 * Live credentials in memory. They are used as long as the process is notified of changes ({@link CredentialCache.trust}).
 * While it may not be, every look-up reads the control database; credentials that are in use stay the same objects.
 */
export class CredentialCache {
  readonly #index = new CredentialIndex();
  readonly #paused: PauseListener;
  /** Bounded, because clients may send any number of random keys. */
  readonly #unknown = new BoundedMap<string, Unknown>({ maxEntries: UNKNOWN_MAX });
  readonly #loading = new Map<string, Promise<Entry | FormerKey | undefined>>();
  readonly #watches = new Set<Watch>();
  #trusted = false;
  /** How often {@link distrust} was called. */
  #distrusts = 0;

  /** @param paused told of every pause that begins or ends, and of those that are noticed later */
  constructor(paused: PauseListener = () => {}) {
    this.#paused = paused;
  }

  /** The credential in memory, if it is known to be up to date. */
  knownByDigest(digest: string): Credential | undefined {
    const name = CredentialIndex.digestName(digest);
    const entry = this.#trusted ? this.#index.get(name) : undefined;
    return entry === undefined || entry.isOutdated ? undefined : entry.keys.get(name)?.credential;
  }

  /** As it was read last; undefined: not in memory. */
  diskStateOf(organizationId: string): DiskState | undefined {
    return this.#index.get(organizationId)?.organization.diskState;
  }

  /** Whether a recent look-up found neither a live nor a former key. */
  isUnknownDigest(digest: string): boolean {
    const unknown = this.#trusted ? this.#unknown.get(CredentialIndex.digestName(digest)) : undefined;
    return unknown !== undefined && unknown.former === undefined && unknown.until > performance.now();
  }

  async findByDigest(digest: Buffer, load: Load<LiveKeys | FormerKey>): Promise<Credential | FormerKey | undefined> {
    const name = CredentialIndex.digestName(digest);
    for (;;) {
      const found = await this.#find(name, load);
      if (found === undefined || 'endedAt' in found) return found;
      const credential = found.keys.get(name)?.credential;
      // Otherwise the key has ended since it was read, and its name is not known any more.
      if (credential !== undefined) return credential;
    }
  }

  async findByOrganization(id: string, load: Load): Promise<OrganizationCredentials | undefined> {
    const found = await this.#find(id, load);
    if (found === undefined || 'endedAt' in found) return undefined;
    const { organization, salt, keys, former } = found;
    return { organization, salt, former, live: [...keys.values()].map(({ credential }) => credential) };
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
      const state = states.get(organizationId) ?? {
        organizationId,
        revision: Number.MAX_SAFE_INTEGER,
        status: 'dropped',
        keys: [],
        ended: {},
        placement: undefined,
        limits: undefined,
        diskState: undefined,
        pausedForMs: null,
      };
      if (this.#index.get(organizationId)?.revision === revision) this.#settle(state);
      // A notification has arrived since the read began.
      else this.#apply(state);
      if ((this.#index.get(organizationId)?.revision ?? 0) <= state.revision) this.#paused(organizationId, state.pausedForMs);
    }
    this.#trusted = this.#distrusts === distrusts;
  }

  /** Called when an organization's key or status has changed to this state. */
  changed(state: KeyState): void {
    this.#announce(state);
    this.#unknown.clear();
    const known = this.#index.get(state.organizationId)?.revision ?? 0;
    this.#apply(state);
    // A notification may arrive after a later change of this process.
    if (state.revision >= known) this.#paused(state.organizationId, state.pausedForMs);
  }

  /** Updates the time of a credential's last use. */
  used(organizationId: string, keyId: string, at: Date): void {
    for (const { key } of this.#index.get(organizationId)?.keys.values() ?? []) if (key.id === keyId) key.lastUsedAt = at;
  }

  #find(name: string, load: Load<LiveKeys | FormerKey>): Promise<Entry | FormerKey | undefined> {
    if (!this.#trusted) return this.#load(name, load);
    const entry = this.#index.get(name);
    if (entry !== undefined && !entry.isOutdated) return Promise.resolve(entry);
    const unknown = this.#unknown.get(name);
    if (unknown !== undefined && unknown.until > performance.now()) return Promise.resolve(unknown.former);
    const loading = this.#loading.get(name) ?? this.#load(name, load).finally(() => this.#loading.delete(name));
    this.#loading.set(name, loading);
    return loading;
  }

  async #load(name: string, load: Load<LiveKeys | FormerKey>): Promise<Entry | FormerKey | undefined> {
    for (;;) {
      const watch: Watch = { everything: false, revisions: new Map() };
      this.#watches.add(watch);
      try {
        const found = await load();
        if (found === undefined || 'endedAt' in found) {
          this.#unknown.set(name, { until: performance.now() + UNKNOWN_TTL_MS, former: found });
          return found;
        }
        const newer = watch.revisions.get(found.organization.id) ?? 0;
        if (!watch.everything && newer <= found.revision) return this.#adopt(found);
      } finally {
        this.#watches.delete(watch);
      }
    }
  }

  /** @returns the one entry of an organization that was read; the state that was read counts, as in {@link trust} */
  #adopt(found: LiveKeys): Entry {
    const state = stateOf(found);
    this.#announce(state);
    this.#settle(state);
    this.#paused(state.organizationId, state.pausedForMs);
    let entry = this.#index.get(found.organization.id);
    if (entry === undefined) {
      entry = newEntry(found);
      this.#index.add(entry);
    } else this.#renew(entry, found);
    this.#awaitExpiry(entry);
    return entry;
  }

  /** Brings an entry up to date; credentials stay the same objects. */
  #renew(entry: Entry, { organization, salt, former, keys, revision }: LiveKeys): void {
    Object.assign(entry.organization, organization);
    Object.assign(entry, { salt, former, revision, isOutdated: false });
    for (const found of keys) {
      const digestName = CredentialIndex.digestName(found.digest);
      const known = entry.keys.get(digestName);
      if (known === undefined) this.#index.addKey(entry, newKeyEntry(found, entry.organization));
      // A login that is under way compares with its verifier.
      else Object.assign(known.key, found.key, { verifier: known.key.verifier });
    }
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

  /** Ends the keys that the state contradicts. */
  #settle(state: KeyState): void {
    const { organizationId, revision, status, keys, ended, placement, limits, diskState } = state;
    const entry = this.#index.get(organizationId);
    if (entry === undefined) return;
    if (entry.organization.status !== status) {
      this.#index.delete(entry);
      for (const { controller } of entry.keys.values()) controller.abort(notActive(organizationId, status));
      return;
    }
    if (placement !== undefined && !isSameForSessions(placement, entry.organization.placement)) {
      this.#index.delete(entry);
      for (const { controller } of entry.keys.values()) controller.abort(moved(organizationId));
      return;
    }
    if (diskState !== undefined && isReadOnly(diskState) !== isReadOnly(entry.organization.diskState)) {
      this.#index.delete(entry);
      for (const { controller } of entry.keys.values()) controller.abort(otherRole(organizationId, diskState));
      return;
    }
    if (placement !== undefined) entry.organization.placement = placement;
    // Whoever is logged in already has them from now on.
    if (limits !== undefined) entry.organization.limits = limits;
    if (diskState !== undefined) entry.organization.diskState = diskState;
    const valid = new Map(keys.map((key) => [key.id, key]));
    for (const key of [...entry.keys.values()]) {
      const found = valid.get(key.key.id);
      if (found?.version !== key.version) this.#end(entry, key, found === undefined ? (ended[key.key.id] ?? 'revoked') : 'changed');
      else key.expiresAt = expiryOf(found.expiresInMs);
    }
    entry.isOutdated ||= entry.revision !== revision;
    entry.revision = revision;
    this.#awaitExpiry(entry);
  }

  #end(entry: Entry, key: KeyEntry, end: KeyEnd | 'changed'): void {
    this.#index.deleteKey(entry, key);
    entry.isOutdated = true;
    key.controller.abort(keyEnded(end));
  }

  /** Has keys end when they expire. The timer does not keep the entry in memory. */
  #awaitExpiry(entry: Entry): void {
    const { remains } = entry;
    clearTimeout(remains.timer);
    remains.timer = undefined;
    const next = Math.min(...[...entry.keys.values()].map(({ expiresAt }) => expiresAt));
    if (next === Number.POSITIVE_INFINITY) return;
    const reference = new WeakRef(entry);
    const expire = () => {
      const expiring = reference.deref();
      if (expiring !== undefined) this.#expire(expiring);
    };
    remains.timer = setTimeout(expire, Math.min(Math.max(0, next - performance.now()) + 1, TIMER_MAX_MS)).unref();
  }

  #expire(entry: Entry): void {
    const now = performance.now();
    for (const key of [...entry.keys.values()])
      if (key.expiresAt <= now) this.#end(entry, key, key.key.replacedBy === null ? 'expired' : 'rotated');
    this.#awaitExpiry(entry);
  }
}

function newEntry({ organization, salt, former, keys, revision }: LiveKeys): Entry {
  const own = { ...organization };
  const entries = keys.map((key) => newKeyEntry(key, own));
  return {
    organization: own,
    salt,
    former,
    keys: new Map(entries.map((entry) => [entry.digestName, entry])),
    revision,
    isOutdated: false,
    remains: { names: new Set(), timer: undefined },
  };
}

function newKeyEntry({ key, digest, version, expiresInMs }: LiveKey, organization: Organization): KeyEntry {
  const controller = new AbortController();
  // Every session opened with the key adds a listener.
  setMaxListeners(0, controller.signal);
  if (organization.status !== 'active') controller.abort(notActive(organization.id, organization.status));
  const own = { ...key };
  return {
    credential: { organization, key: own, revoked: controller.signal },
    key: own,
    controller,
    digestName: CredentialIndex.digestName(digest),
    version,
    expiresAt: expiryOf(expiresInMs),
  };
}

function expiryOf(expiresInMs: number | null): number {
  return expiresInMs === null ? Number.POSITIVE_INFINITY : performance.now() + expiresInMs;
}

/** Whether clients see no difference between two placements, so that their sessions may go on in the other one. */
function isSameForSessions(one: Placement, other: Placement): boolean {
  const isSame = one.kind === other.kind && one.database === other.database && one.schema === other.schema;
  return isSame && (one.kind === 'database' || one.cluster === other.cluster);
}

/** How many organizations are kept although nothing refers to their credentials. */
const RECENT_MAX = 20_000;

/** A live key, with the parts of its credential that only the cache may change. */
interface KeyEntry {
  readonly credential: Credential;
  /** The credential's key, whose details may change. */
  readonly key: { -readonly [Part in keyof ApiKey]: ApiKey[Part] };
  readonly controller: AbortController;
  readonly digestName: string;
  readonly version: number;
  /** When it expires, on the clock of `performance.now()`. */
  expiresAt: number;
}

/** An organization and its live keys. */
export interface Entry {
  readonly organization: { -readonly [Part in keyof Organization]: Organization[Part] };
  salt: SaltOfKeys;
  former: readonly ProvableFormerKey[];
  /** By their digest names; the oldest first. */
  readonly keys: Map<string, KeyEntry>;
  revision: number;
  /** Something has changed that is not known yet: it has to be read again, before it is used again. */
  isOutdated: boolean;
  /** What has to be forgotten with it. It does not refer to the entry. */
  readonly remains: Remains;
}

interface Remains {
  readonly names: Set<string>;
  /** Waits for the next key to expire. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Entries by name. Those looked up recently are kept. Any other is kept exactly as long as something refers to one of its credentials
 * or their signals, so that there are never two for one key, and memory depends on use and not on the number of organizations.
 */
export class CredentialIndex {
  readonly #byName = new Map<string, WeakRef<Entry>>();
  /** From a signal to its entry: a reference to the signal keeps the entry in memory. */
  readonly #bySignal = new WeakMap<AbortSignal, Entry>();
  readonly #collected = new FinalizationRegistry<Remains>((remains) => this.#forget(remains));
  readonly #recent: BoundedMap<Entry, Entry>;

  constructor(recentMax = RECENT_MAX) {
    this.#recent = new BoundedMap({ maxEntries: recentMax });
  }

  /** The name of an entry by one of its keys' digests. The other name is the organization's id. */
  static digestName(digest: Buffer | string): string {
    return `#${typeof digest === 'string' ? digest : digest.toString('latin1')}`;
  }

  get(name: string): Entry | undefined {
    const entry = this.#byName.get(name)?.deref();
    if (entry !== undefined && this.#recent.use(entry) === undefined) this.#recent.set(entry, entry);
    return entry;
  }

  add(entry: Entry): void {
    const { remains, organization } = entry;
    this.#collected.register(entry, remains);
    this.#recent.set(entry, entry);
    this.#name(entry, organization.id);
    for (const key of entry.keys.values()) this.#hold(entry, key);
  }

  addKey(entry: Entry, key: KeyEntry): void {
    entry.keys.set(key.digestName, key);
    this.#hold(entry, key);
  }

  deleteKey(entry: Entry, { digestName }: KeyEntry): void {
    entry.keys.delete(digestName);
    entry.remains.names.delete(digestName);
    if (this.#byName.get(digestName)?.deref() === entry) this.#byName.delete(digestName);
  }

  delete(entry: Entry): void {
    clearTimeout(entry.remains.timer);
    for (const name of entry.remains.names) if (this.#byName.get(name)?.deref() === entry) this.#byName.delete(name);
    this.#recent.delete(entry);
  }

  /** The revisions of all entries, by organization id. */
  revisions(): Map<string, number> {
    const revisions = new Map<string, number>();
    for (const [name, reference] of this.#byName) {
      const entry = name.startsWith('#') ? undefined : reference.deref();
      if (entry !== undefined) revisions.set(name, entry.revision);
    }
    return revisions;
  }

  #hold(entry: Entry, { digestName, credential }: KeyEntry): void {
    this.#name(entry, digestName);
    this.#bySignal.set(credential.revoked, entry);
  }

  #name(entry: Entry, name: string): void {
    entry.remains.names.add(name);
    this.#byName.set(name, new WeakRef(entry));
  }

  #forget({ names, timer }: Remains): void {
    clearTimeout(timer);
    for (const name of names) if (this.#byName.get(name)?.deref() === undefined) this.#byName.delete(name);
  }
}

const ENDS = { rotated: 'rotation', revoked: 'revocation', expired: 'expiry', changed: 'networks that have changed' };

/** Why the sessions of a key end: the key has ended, or may not be used from where it was. */
function keyEnded(end: KeyEnd | 'changed'): ServiceError {
  return new ServiceError('key_revoked', `terminating connection due to API key ${ENDS[end]}`);
}

/** Sessions go on in the new placement, when their clients have connected again. */
function moved(organizationId: string): ServiceError {
  return new ServiceError('shutting_down', `terminating connection because organization "${organizationId}" has been moved`, {
    retryAfterS: 1,
  });
}

function isReadOnly(state: DiskState): boolean {
  return state === 'read_only';
}

/** Sessions go on with another role, when their clients have connected again. */
function otherRole(organizationId: string, state: DiskState): ServiceError {
  const now = isReadOnly(state) ? 'is over its disk quota' : 'is within its disk quota again';
  return new ServiceError('shutting_down', `terminating connection because organization "${organizationId}" ${now}`, { retryAfterS: 1 });
}

/** Why an organization that is suspended or being dropped has no sessions. */
function notActive(organizationId: string, status: OrganizationStatus): ServiceError {
  if (status === 'suspended') return new ServiceError('organization_suspended', `organization "${organizationId}" is suspended`);
  return new ServiceError('key_revoked', `terminating connection because organization "${organizationId}" is no longer active`);
}
