import { setTimeout as delay } from 'node:timers/promises';
import { inNetworks, parseAddress } from '../auth/tokens.ts';
import { ServiceError } from '../errors.ts';
import type { ObservedStatement, Origin } from '../observation.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import { type KeyState, loadStates } from './credentials.ts';
import {
  type ApiKey,
  checkExpiry,
  endKey,
  endKeyLater,
  FIRST_KEY,
  finishKeyChange,
  insertKey,
  KEYS_MAX,
  type KeyDetails,
  listKeys,
  type NewApiKey,
  noKey,
  updateKey,
} from './key-rows.ts';
import { type ChangeOrganization, lockOrganization } from './organization.ts';

/** How long to ask for the outcome of a change whose answer was lost: long enough for a server to recover. */
const SETTLE_TIMEOUT_MS = 10_000;
const SETTLE_POLL_MS = 100;

export interface RotatedKey {
  readonly key: ApiKey;
  readonly previous: { readonly id: string; readonly prefix: string; readonly invalidatedAt: Date };
}

/** A change that an organization makes with one of its keys. */
interface KeyChange {
  readonly organizationId: string;
  /** The key that asks for it. */
  readonly actorKeyId: string;
  readonly origin: Origin;
}

interface KeyRegistryOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  readonly now: () => Date;
  readonly change: ChangeOrganization;
  /** Called with a state that was read after a change with an unknown outcome. */
  readonly changed: (state: KeyState) => void;
}

/**
 * The keys of organizations in the control database. Each change is made in one transaction with its audit entry. A key that ends is invalid in this process when
 * the call returns, and in others as soon as they are notified; sessions opened with it end. Each method throws ServiceError `unauthorized`
 * when the key that asks is no longer valid, and `backend_lost` when it cannot be determined whether a new key is valid.
 */
export class KeyRegistry {
  readonly #options: KeyRegistryOptions;

  constructor(options: KeyRegistryOptions) {
    this.#options = options;
  }

  /** The live keys, the oldest first. */
  list(organizationId: string): Promise<ApiKey[]> {
    return this.#options.database.readFor(organizationId, (sql) => listKeys(sql, organizationId));
  }

  /** @throws ServiceError `too_many_keys`, `invalid_request` */
  create(change: KeyChange, newKey: NewApiKey, details: KeyDetails): Promise<ApiKey> {
    return this.#certain(change.organizationId, newKey, (prepared) =>
      this.#change(change, async (sql, keys) => {
        checkRoom(keys);
        await checkExpiry(sql, details.expiresAt);
        const key = await this.#insert(sql, change, newKey, details);
        return { result: prepared(key), action: 'keys.create', text: `CREATE KEY ${describe(key)}` };
      }),
    );
  }

  /**
   * Replaces a key by one with the same details.
   * @param graceS how long the old one stays valid beside it; with 0 it ends now
   * @throws ServiceError `not_found`, `too_many_keys`; `forbidden` when another key is taking its place already
   */
  rotate(change: KeyChange, keyId: string, newKey: NewApiKey, graceS = 0): Promise<RotatedKey> {
    return this.#certain(change.organizationId, newKey, (prepared) =>
      this.#change(change, async (sql, keys) => {
        const old = find(keys, keyId);
        if (old.replacedBy !== null)
          throw new ServiceError('forbidden', `the key ${old.replacedBy} is taking the place of this one already`);
        if (graceS > 0) checkRoom(keys);
        const key = await this.#insert(sql, change, newKey, old);
        const invalidatedAt =
          graceS > 0 ? await endKeyLater(sql, old.id, key.id, graceS) : await this.#end(sql, old, 'rotated', key.createdAt);
        return {
          result: prepared({ key, previous: { id: old.id, prefix: old.prefix, invalidatedAt } }),
          action: keyId === change.actorKeyId ? 'auth.rotate_key' : 'keys.rotate',
          text: `ALTER KEY ${old.id} REPLACED BY ${key.id} EXPIRES '${invalidatedAt.toISOString()}'`,
        };
      }),
    );
  }

  /**
   * When its networks change, sessions that were opened with the key end.
   * @throws ServiceError `not_found`, `invalid_request`; `last_admin_key` if nobody could manage keys from where it is asked for;
   * `forbidden` for a later end of a key that is being replaced
   */
  update(change: KeyChange, keyId: string, details: Partial<Omit<KeyDetails, 'scope'>>): Promise<ApiKey> {
    return this.#change(change, async (sql, keys) => {
      const old = find(keys, keyId);
      const key = { ...old, ...details };
      if (details.expiresAt !== undefined) await checkExpiry(sql, details.expiresAt);
      if (old.replacedBy !== null && endsLater(key, old)) {
        throw new ServiceError('forbidden', `the key ${old.replacedBy} is taking the place of this one, which ends as it has been told`);
      }
      checkAdminIsLeft(
        keys,
        keys.map((one) => (one.id === keyId ? key : one)),
        change.origin,
      );
      await updateKey(sql, keyId, key);
      return { result: key, action: 'keys.update', text: `ALTER KEY ${describe(key)}` };
    });
  }

  /** @throws ServiceError `not_found`; `forbidden` for the only admin key that does not expire */
  revoke(change: KeyChange, keyId: string): Promise<Date> {
    return this.#change(change, async (sql, keys) => {
      const old = find(keys, keyId);
      if (isLasting(old) && keys.filter(isLasting).length === 1) {
        const hint = 'Make another admin key first, or rotate this one.';
        throw new ServiceError('forbidden', 'this is the only admin key that does not expire', { hint });
      }
      return { result: await this.#end(sql, old, 'revoked'), action: 'keys.revoke', text: `DROP KEY ${describe(old)}` };
    });
  }

  /** The organization of a live key. */
  async organizationOf(keyId: string): Promise<string | undefined> {
    const [row] = await this.#options.database.run(
      (sql) => sql<{ organizationId: string }[]>`
      select organization_id as "organizationId" from postern.api_keys where id = ${keyId} and revoked_at is null`,
    );
    return row?.organizationId;
  }

  /**
   * Ends a key, for operators: it may be the organization's only one.
   * @throws ServiceError `not_found`
   */
  async revokeByOperator(organizationId: string, keyId: string, origin: Origin): Promise<ApiKey> {
    const { change, audit } = this.#options;
    return change(organizationId, async (sql) => {
      const old = find(await listKeys(sql, organizationId), keyId);
      await this.#end(sql, old, 'revoked');
      await finishKeyChange(sql, organizationId);
      const statement = statementOf(`DROP KEY ${describe(old)}`);
      await audit.appendWith(sql, { organizationId, action: 'keys.revoke', origin, statement, outcome: DONE });
      return old;
    });
  }

  /**
   * Makes a new admin key for an organization that has lost its own, for operators. Its other admin keys end.
   * @throws ServiceError `not_found`; `invalid_request` when the organization's status allows no key
   */
  issue(organizationId: string, newKey: NewApiKey, origin: Origin): Promise<ApiKey> {
    const { change, audit, now } = this.#options;
    return this.#certain(organizationId, newKey, (prepared) =>
      change(organizationId, async (sql, { status }) => {
        if (status !== 'active' && status !== 'suspended') {
          throw new ServiceError('invalid_request', `organization "${organizationId}" is ${status}: it has no use for a key`);
        }
        for (const old of await listKeys(sql, organizationId)) if (old.scope === 'admin') await this.#end(sql, old, 'rotated');
        const key = await insertKey(sql, organizationId, newKey, FIRST_KEY, { at: now() });
        await finishKeyChange(sql, organizationId);
        const statement = statementOf(`CREATE KEY ${describe(key)}`);
        await audit.appendWith(sql, { organizationId, action: 'key.issued', origin, statement, outcome: DONE });
        return prepared(key);
      }),
    );
  }

  /** @param work gets the live keys of the locked organization, and returns what the audit log records besides its result */
  #change<T>(
    { organizationId, actorKeyId, origin }: KeyChange,
    work: (sql: Sql, keys: readonly ApiKey[]) => Promise<{ readonly result: T; readonly action: string; readonly text: string }>,
  ): Promise<T> {
    return this.#options.change(organizationId, async (sql) => {
      const keys = await listKeys(sql, organizationId);
      const asking = keys.find(({ id }) => id === actorKeyId);
      if (asking === undefined) throw new ServiceError('unauthorized', 'the API key is not valid: it has been rotated or revoked');
      const { result, action, text } = await work(sql, keys);
      await finishKeyChange(sql, organizationId);
      const actor = { keyId: asking.id, keyPrefix: asking.prefix };
      const event = { organizationId, action, origin, actor, statement: statementOf(text), outcome: DONE };
      await this.#options.audit.appendWith(sql, event);
      return result;
    });
  }

  #insert(sql: Sql, { organizationId, actorKeyId }: KeyChange, newKey: NewApiKey, details: KeyDetails): Promise<ApiKey> {
    return insertKey(sql, organizationId, newKey, details, { at: this.#options.now(), createdBy: actorKeyId });
  }

  async #end(sql: Sql, { id }: ApiKey, end: 'rotated' | 'revoked', at = this.#options.now()): Promise<Date> {
    await endKey(sql, id, end, at);
    return at;
  }

  /**
   * If only the answer to COMMIT was lost, the new key is live, and only the caller of `make` has it.
   * @param make passes its result to `prepared` before it is committed
   */
  async #certain<T>(organizationId: string, { id }: NewApiKey, make: (prepared: (result: T) => T) => Promise<T>): Promise<T> {
    const prepared: T[] = [];
    try {
      return await make((result) => {
        prepared.push(result);
        return result;
      });
    } catch (error) {
      const [result] = prepared;
      if (result !== undefined && isNotReady(error) && (await this.#isLive(organizationId, id))) return result;
      throw error;
    }
  }

  /**
   * Whether this is one of the organization's keys, after a change whose outcome is unknown. Asks until there is an answer.
   * @throws ServiceError `backend_lost` when there is no answer in time
   */
  async #isLive(organizationId: string, keyId: string): Promise<boolean> {
    const deadline = performance.now() + SETTLE_TIMEOUT_MS;
    for (;;) {
      try {
        const state = await this.#options.database.changeFor(organizationId, async (sql) => {
          // Waits for a COMMIT that the server is still processing.
          await lockOrganization(sql, organizationId);
          const [state] = await loadStates(sql, [organizationId]);
          return state;
        });
        if (state !== undefined) this.#options.changed(state);
        return state?.keys.some(({ id }) => id === keyId) ?? false;
      } catch (cause) {
        // This includes the shutdown of the service, after which it cannot ask any more: the change may have happened.
        if (!isNotReady(cause) || performance.now() > deadline) {
          throw new ServiceError('backend_lost', 'it is not known whether the key was made', { cause });
        }
        await delay(SETTLE_POLL_MS);
      }
    }
  }
}

/** @throws ServiceError `not_found` */
function find(keys: readonly ApiKey[], keyId: string): ApiKey {
  const key = keys.find(({ id }) => id === keyId);
  if (key === undefined) throw noKey();
  return key;
}

function checkRoom(keys: readonly ApiKey[]): void {
  if (keys.length >= KEYS_MAX) throw new ServiceError('too_many_keys', `an organization may have ${KEYS_MAX} keys`);
}

/** A key that is being replaced has an end. */
function endsLater({ expiresAt }: ApiKey, { expiresAt: before }: ApiKey): boolean {
  return expiresAt === null || (before !== null && expiresAt > before);
}

/** @throws ServiceError `last_admin_key` */
function checkAdminIsLeft(before: readonly ApiKey[], after: readonly ApiKey[], { sourceIp }: Origin): void {
  const address = parseAddress(sourceIp);
  const worksHere = (key: ApiKey) =>
    isLasting(key) && (key.networks === null || (address !== undefined && inNetworks(key.networks)(address)));
  if (before.some(isLasting) && !after.some(isLasting)) {
    const hint = 'Make another admin key first, or rotate this one.';
    throw new ServiceError('last_admin_key', 'this is the only admin key that does not expire', { hint });
  }
  if (before.some(worksHere) && !after.some(worksHere)) {
    const hint = `Name networks that ${sourceIp} is in, or make another admin key first.`;
    throw new ServiceError('last_admin_key', 'no admin key that does not expire could be used from your address', { hint });
  }
}

function isLasting({ scope, expiresAt }: ApiKey): boolean {
  return scope === 'admin' && expiresAt === null;
}

/** A key as the audit log names it. */
function describe({ id, name, scope, expiresAt, networks }: Pick<ApiKey, 'id'> & KeyDetails): string {
  const text = (value: string) => `'${value.replaceAll("'", "''")}'`;
  return [
    id,
    `NAME ${text(name)} SCOPE ${scope}`,
    ...(expiresAt === null ? [] : [`EXPIRES ${text(expiresAt.toISOString())}`]),
    ...(networks === null ? [] : [`NETWORKS ${networks.map(text).join(', ')}`]),
  ].join(' ');
}

function statementOf(sql: string): ObservedStatement {
  return { sql, command: sql.split(' ', 2).join(' ') };
}

function isNotReady(error: unknown): boolean {
  return error instanceof ServiceError && error.kind === 'not_ready';
}

const WRITE_DELAY_MS = 1_000;
/** The use of one key is written at most this often. */
const WRITE_EVERY_MS = 60_000;
/** Uses remembered at once; that of a key whose last one has been forgotten is written sooner. */
const NOTED_MAX = 100_000;

type KeyLastUsedListener = (organizationId: string, keyId: string, at: Date) => void;

/** When keys were last used. It is noted in memory and written in batches; if the process crashes, at most a minute is lost. */
export class KeyLastUsed {
  readonly #database: ControlPool;
  readonly #now: () => Date;
  readonly #written: KeyLastUsedListener;
  /** When a use of each key was noted last. */
  readonly #noted = new BoundedMap<string, number>({ maxEntries: NOTED_MAX });
  #unwritten = new Map<string, Date>();
  #timer: NodeJS.Timeout | undefined;

  constructor(database: ControlPool, now: () => Date, written: KeyLastUsedListener) {
    this.#database = database;
    this.#now = now;
    this.#written = written;
  }

  touch(keyId: string): void {
    const last = this.#noted.get(keyId);
    const now = performance.now();
    if (last !== undefined && now - last < WRITE_EVERY_MS) return;
    this.#noted.set(keyId, now);
    this.#unwritten.set(keyId, this.#now());
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_DELAY_MS);
  }

  /** Never rejects. What cannot be written now is written after the key's next use. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = this.#unwritten;
    this.#unwritten = new Map();
    if (uses.size === 0) return;
    try {
      for (const { keyId, organizationId } of await this.#write(uses)) this.#written(organizationId, keyId, uses.get(keyId) ?? this.#now());
    } catch {
      for (const keyId of uses.keys()) this.#noted.delete(keyId);
    }
  }

  /** Rows are locked in the order of their ids, so that processes cannot deadlock. */
  #write(uses: ReadonlyMap<string, Date>): Promise<{ keyId: string; organizationId: string }[]> {
    const rows = JSON.stringify([...uses].map(([id, at]) => ({ id, at })));
    return this.#database.run(
      (sql) => sql<{ keyId: string; organizationId: string }[]>`
        with uses as (
          select k.id, u.at
          from jsonb_to_recordset(${rows}::text::jsonb) as u (id text, at timestamptz)
          join postern.api_keys k on k.id = u.id
          order by k.id
          for no key update of k
        )
        update postern.api_keys k set last_used_at = greatest(k.last_used_at, uses.at)
        from uses
        where k.id = uses.id
        returning k.id as "keyId", k.organization_id as "organizationId"`,
    );
  }
}
