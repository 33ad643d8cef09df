import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { ApiKey } from '../organizations/organization.ts';
import type { Credential } from './credential.ts';

/** How many credentials are kept although nothing refers to them. */
const RECENT_MAX = 20_000;

/** A credential, with the parts of it that only the cache may change. */
export interface Entry {
  readonly credential: Credential;
  /** The credential's key; the time of its last use changes. */
  readonly key: { lastUsedAt: Date | null } & Omit<ApiKey, 'lastUsedAt'>;
  readonly controller: AbortController;
  readonly digestName: string;
  revision: number;
}

/**
 * Entries by name. Those looked up recently are kept. Any other is kept exactly as long as something refers to its credential or
 * its signal, so that there are never two for one key, and memory depends on use and not on the number of organizations.
 */
export class CredentialIndex {
  readonly #byName = new Map<string, WeakRef<Entry>>();
  /** From a signal to its entry: a reference to the signal keeps the entry in memory. */
  readonly #bySignal = new WeakMap<AbortSignal, Entry>();
  readonly #collected = new FinalizationRegistry<readonly string[]>((names) => this.#forget(names));
  readonly #recent: BoundedMap<Entry, Entry>;

  constructor(recentMax = RECENT_MAX) {
    this.#recent = new BoundedMap({ maxEntries: recentMax });
  }

  /** The name of an entry by its key's digest. The other name is the organization's id. */
  static digestName(digest: Buffer | string): string {
    return `#${typeof digest === 'string' ? digest : digest.toString('latin1')}`;
  }

  get(name: string): Entry | undefined {
    const entry = this.#byName.get(name)?.deref();
    if (entry !== undefined && this.#recent.use(entry) === undefined) this.#recent.set(entry, entry);
    return entry;
  }

  add(entry: Entry): void {
    const reference = new WeakRef(entry);
    for (const name of namesOf(entry)) this.#byName.set(name, reference);
    this.#bySignal.set(entry.credential.revoked, entry);
    this.#collected.register(entry, namesOf(entry));
    this.#recent.set(entry, entry);
  }

  delete(entry: Entry): void {
    for (const name of namesOf(entry)) {
      if (this.#byName.get(name)?.deref() === entry) this.#byName.delete(name);
    }
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

  #forget(names: readonly string[]): void {
    for (const name of names) {
      if (this.#byName.get(name)?.deref() === undefined) this.#byName.delete(name);
    }
  }
}

function namesOf({ credential, digestName }: Entry): readonly string[] {
  return [digestName, credential.organization.id];
}
