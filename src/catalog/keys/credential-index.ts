import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { Organization } from '../organizations/organization.ts';
import type { ApiKey } from './api-key.ts';
import type { Credential, ProvableFormerKey, SaltOfKeys } from './credential.ts';

/** How many organizations are kept although nothing refers to their credentials. */
const RECENT_MAX = 20_000;

/** A live key, with the parts of its credential that only the cache may change. */
export interface KeyEntry {
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
