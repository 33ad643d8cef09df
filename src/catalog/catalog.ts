import { randomInt } from 'node:crypto';
import type { Actor, Observe, Origin } from '../observation.ts';
import { DONE } from './audit/entries/record.ts';
import { AuditLog } from './audit/log.ts';
import { CLUSTERS_CHANNEL, ClusterRegistry } from './clusters/cluster-registry.ts';
import { ADVISORY_LOCKS } from './database/advisory-locks.ts';
import type { ControlConnection, Sql } from './database/control-connection.ts';
import { ControlPool } from './database/control-pool.ts';
import { migrate } from './database/migrate.ts';
import { NotificationChannel } from './database/notification-channel.ts';
import type { Credential, FormerKey, OrganizationCredentials } from './keys/credential.ts';
import { CredentialCache, type PauseListener } from './keys/credential-cache.ts';
import { KeyChanges } from './keys/key-changes.ts';
import { KeyLastUsed } from './keys/key-last-used.ts';
import { deleteKeys } from './keys/keys.ts';
import { CREDENTIALS_CHANNEL, loadByDigest, loadByOrganization, loadStates, notifyChange, parseChange } from './keys/live-keys.ts';
import { PgLocks } from './lock-table/pg-locks.ts';
import { type Clone, deleteClone, listClones, listExpiredClones } from './organizations/clones.ts';
import { deleteExpiredInvitations } from './organizations/invitations.ts';
import { deleteMove, MoveChanges } from './organizations/moves.ts';
import type { ApiKey, Organization, OrganizationStatus } from './organizations/organization.ts';
import {
  checkChange,
  emailTaken,
  findOrganization,
  listOrganizations,
  lockOrganization,
  type ProfileChanges,
  updateProfile,
  updateStatus,
} from './organizations/organizations.ts';
import { PauseChanges } from './organizations/pauses.ts';
import { SignUpChanges } from './organizations/sign-up-changes.ts';
import { countEmailChange, deleteOldAttempts } from './organizations/signups.ts';
import { CANCELS_CHANNEL, CancelForwarding } from './processes/cancel-forwarding.ts';
import { FAILURES_CHANNEL, FailureSharing } from './processes/failure-sharing.ts';
import { ProcessRequests } from './processes/process-requests.ts';
import { deleteOldRequests, PROCESSES_CHANNEL } from './processes/request-rows.ts';
import { SLOTS_CHANNEL, SlotRequests } from './processes/slot-requests.ts';
import { QueryStatistics } from './query-statistics/query-statistics.ts';
import { TextFileWatch } from './query-statistics/text-file-watch.ts';
import { deleteQueries } from './saved-queries/rows.ts';
import { SavedQueries } from './saved-queries/saved-queries.ts';
import { deleteOldUsage, deleteUsage } from './usage/stored-usage.ts';
import { Usage } from './usage/usage.ts';

export type { ControlConnection } from './database/control-connection.ts';
export type { Credential, FormerKey, NewApiKey } from './keys/credential.ts';
export type { RotatedKey } from './keys/key-changes.ts';
export type { NewInvitation } from './organizations/invitations.ts';
export type { SignUp, SignupQuota } from './organizations/signups.ts';

const MAINTENANCE_EVERY_MS = 3_600_000;
const ORGANIZATION_ID = /^org_[a-z0-9]{12}$/;
const PING_TIMEOUT_MS = 5_000;

export interface CatalogOptions {
  /** The control database. It exists, and the role owns it. */
  readonly connection: ControlConnection;
  readonly observe: Observe;
  /** How long audit entries are kept. */
  readonly auditDays: number;
  readonly now?: () => Date;
  /** Called when a statement failed with out_of_memory (53200), which any write to the audit log may. */
  readonly onOutOfMemory?: () => void;
}

/** Who changes something: an organization, by one of its keys. */
interface Caller {
  readonly organization: Pick<Organization, 'id'>;
  readonly key: Pick<ApiKey, 'id' | 'prefix'>;
}

/**
 * Organizations, their keys and their audit logs. They are stored in the control database, schema `postern`, which any
 * number of processes may share. Every method throws ServiceError `not_ready` when the database cannot be reached.
 */
export class Catalog {
  readonly audit: AuditLog;
  readonly keys: KeyChanges;
  readonly savedQueries: SavedQueries;
  readonly locks: PgLocks;
  readonly clusters: ClusterRegistry;
  /** Requests to the other processes that share the database. */
  readonly processes: ProcessRequests;
  /** Cancel requests for sessions of other processes. */
  readonly cancels: CancelForwarding;
  /** Failed logins, which count in all processes. */
  readonly failures: FailureSharing;
  /** Sessions that other processes need more. */
  readonly slots: SlotRequests;
  readonly queryStatistics: QueryStatistics;
  readonly signUps: SignUpChanges;
  readonly pauses: PauseChanges;
  readonly moves: MoveChanges;
  readonly usage: Usage;
  readonly #options: CatalogOptions;
  readonly #now: () => Date;
  readonly #database: ControlPool;
  readonly #credentials = new CredentialCache((...paused) => this.#onPause(...paused));
  readonly #channel: NotificationChannel;
  readonly #keyUse: KeyLastUsed;
  readonly #queryTexts: TextFileWatch;
  /** This process's number among those that share the database. */
  readonly #process = randomInt(1, 2 ** 31);
  #maintenance: NodeJS.Timeout | undefined;
  #maintaining: Promise<void> = Promise.resolve();
  #listens = false;
  #onPause: PauseListener = () => {};
  #closing = false;

  private constructor(options: CatalogOptions) {
    const { connection, observe } = options;
    this.#options = options;
    this.#now = options.now ?? (() => new Date());
    this.#database = new ControlPool(connection, options.onOutOfMemory);
    this.locks = new PgLocks(connection, this.#database);
    this.clusters = new ClusterRegistry(this.#database);
    this.queryStatistics = new QueryStatistics(this.#database);
    this.usage = new Usage(this.#database, this.#now);
    this.#queryTexts = new TextFileWatch(this.#database, observe);
    this.audit = new AuditLog({ database: this.#database, observe, now: this.#now });
    this.keys = new KeyChanges({
      database: this.#database,
      audit: this.audit,
      now: this.#now,
      change: (...change) => this.#change(...change),
      changed: (state) => this.#credentials.changed(state),
    });
    this.signUps = new SignUpChanges({
      database: this.#database,
      audit: this.audit,
      now: this.#now,
      process: this.#process,
      change: (...change) => this.#change(...change),
      changed: (state) => this.#credentials.changed(state),
    });
    this.pauses = new PauseChanges({ change: (...change) => this.#change(...change) });
    this.moves = new MoveChanges({ database: this.#database, audit: this.audit, change: (...change) => this.#change(...change) });
    this.savedQueries = new SavedQueries({ database: this.#database, audit: this.audit, now: this.#now });
    this.#keyUse = new KeyLastUsed(this.#database, this.#now, (...use) => this.#credentials.used(...use));
    this.processes = new ProcessRequests(this.#process, this.#database, observe);
    this.cancels = new CancelForwarding(this.#process, this.#database, observe);
    this.failures = new FailureSharing(this.#process, this.#database, observe);
    this.slots = new SlotRequests(this.#process, this.#database, observe);
    const receivers = new Map<string, (payload: string) => void>([
      [CREDENTIALS_CHANNEL, (payload) => this.#changed(payload)],
      [PROCESSES_CHANNEL, (payload) => this.processes.notified(payload)],
      [CANCELS_CHANNEL, (payload) => this.cancels.notified(payload)],
      [FAILURES_CHANNEL, (payload) => this.failures.notified(payload)],
      [SLOTS_CHANNEL, (payload) => this.slots.notified(payload)],
      [CLUSTERS_CHANNEL, () => this.clusters.notified()],
    ]);
    this.#channel = new NotificationChannel(connection, [...receivers.keys()], {
      opened: (sql) => this.#listening(sql),
      notified: (payload, channel) => receivers.get(channel)?.(payload),
      lost: () => this.#notificationsLost(),
    });
  }

  /**
   * Connects, brings the schema up to date and listens for changes.
   * @throws CatalogMigrationError when another version has written the database
   */
  static async open(options: CatalogOptions): Promise<Catalog> {
    const catalog = new Catalog(options);
    try {
      await migrate(catalog.#database);
      await catalog.#channel.open();
      catalog.#maintenance = setInterval(() => catalog.#maintain(), MAINTENANCE_EVERY_MS);
      catalog.#maintain();
      catalog.#queryTexts.start();
      catalog.usage.start();
      void catalog.locks.reserved.hold();
      return catalog;
    } catch (error) {
      await catalog.close();
      throw error;
    }
  }

  /** Has `listener` called when an organization that this process may have sessions of is paused or no longer so. */
  onPause(listener: PauseListener): void {
    this.#onPause = listener;
  }

  organizations(filter: { readonly status?: OrganizationStatus } = {}): Promise<Organization[]> {
    return this.#database.run((sql) => listOrganizations(sql, filter.status));
  }

  organization(id: string): Promise<Organization | undefined> {
    return this.#database.run((sql) => findOrganization(sql, id));
  }

  /** The clones of an organization that have not been dropped, the oldest first. */
  clones(sourceId: string): Promise<Clone[]> {
    return this.#database.run((sql) => listClones(sql, sourceId));
  }

  /** The clones whose time is over, and those of organizations that are gone. */
  expiredClones(): Promise<Clone[]> {
    return this.#database.run((sql) => listExpiredClones(sql));
  }

  /**
   * Changes the name or the e-mail address of the caller's organization.
   * @throws ServiceError `email_taken`, `rate_limited`
   */
  async updateProfile({ organization: { id }, key }: Caller, changes: ProfileChanges, origin: Origin): Promise<Organization> {
    const changed = await this.#database
      .transaction(async (sql) => {
        const before = await lockOrganization(sql, id);
        if (changes.email !== undefined && changes.email !== before.email) await countEmailChange(sql, id, this.#now());
        const after = await updateProfile(sql, id, changes);
        if (after === undefined) return undefined;
        const actor = { keyId: key.id, keyPrefix: key.prefix };
        await this.audit.appendWith(sql, { organizationId: id, action: 'organization.updated', origin, actor, outcome: DONE });
        return after;
      })
      .catch((error: unknown) => {
        // Another organization has taken the address since this one looked.
        throw isUniqueViolation(error) ? emailTaken() : error;
      });
    if (changed === undefined) throw emailTaken();
    return changed;
  }

  /**
   * When an organization stops being `active`, its sessions end in every process. When it is `dropped`, its keys are
   * deleted, its saved queries too, and its e-mail address may be used again; its audit log stays.
   * @throws ServiceError `not_found`; `invalid_request` when the status cannot change this way
   */
  setStatus(
    organizationId: string,
    status: OrganizationStatus,
    origin: Origin,
    actor?: Omit<Actor, 'organizationId'>,
  ): Promise<Organization> {
    return this.#change(organizationId, async (sql, organization) => {
      if (organization.status === status) return organization;
      checkChange(organization, status);
      await updateStatus(sql, organizationId, status);
      if (status === 'dropped') {
        await Promise.all(
          [deleteKeys, deleteQueries, deleteUsage, deleteClone, deleteMove].map((deleteAll) => deleteAll(sql, organizationId)),
        );
      }
      await this.audit.appendWith(sql, { organizationId, action: `organization.${status}`, origin, actor, outcome: DONE });
      return { ...organization, status };
    });
  }

  /** As {@link findByDigest}, from memory only. @param digest a character for each byte */
  knownByDigest(digest: string): Credential | undefined {
    return this.#credentials.knownByDigest(digest);
  }

  /** Whether a recent look-up found no such key. @param digest a character for each byte */
  isUnknownDigest(digest: string): boolean {
    return this.#credentials.isUnknownDigest(digest);
  }

  /** The live key with this SHA-256 digest, or a former one. Found keys are kept in memory. */
  findByDigest(digest: Buffer): Promise<Credential | FormerKey | undefined> {
    return this.#credentials.findByDigest(digest, () => this.#database.run((sql) => loadByDigest(sql, digest)));
  }

  /** The organization's live keys, and its last former ones. They are kept in memory. */
  findByOrganization(id: string): Promise<OrganizationCredentials | undefined> {
    // The id is whatever a client has sent as its user name.
    if (!ORGANIZATION_ID.test(id)) return Promise.resolve(undefined);
    return this.#credentials.findByOrganization(id, () => this.#database.run((sql) => loadByOrganization(sql, id)));
  }

  /** Notes that a key is in use. It is written later, at most once a minute for a key. */
  touchKey(keyId: string): void {
    this.#keyUse.touch(keyId);
  }

  /** Whether its server has answered in the last seconds. */
  get isAnswering(): boolean {
    return this.#listens;
  }

  /** Resolves when the control database answers. */
  async ping(): Promise<void> {
    await this.#database.run((sql) => sql`select 1`, PING_TIMEOUT_MS);
  }

  /** Writes pending audit entries and key uses, then ends all sessions. */
  async close(): Promise<void> {
    this.failures.close();
    this.#closing = true;
    clearInterval(this.#maintenance);
    this.locks.reserved.close();
    this.processes.close();
    await Promise.all([
      this.audit.close(),
      this.#keyUse.flush(),
      this.#maintaining,
      this.#queryTexts.stop(),
      this.usage.stop(),
      this.#channel.close(),
    ]);
    await this.#database.close();
  }

  /** Changes an organization or its keys, in one transaction with its audit entry, and notifies every process. */
  async #change<T>(organizationId: string, work: (sql: Sql, organization: Organization) => Promise<T>): Promise<T> {
    const { result, state } = await this.#database.transaction(async (sql) => {
      const organization = await lockOrganization(sql, organizationId);
      return { result: await work(sql, organization), state: await notifyChange(sql, organizationId) };
    });
    this.#credentials.changed(state);
    return result;
  }

  async #listening(sql: Sql): Promise<void> {
    // The lock shows that this process is alive; see SignUpChanges.takeInterrupted.
    await sql`select pg_advisory_lock_shared(${ADVISORY_LOCKS.process}, ${this.#process})`;
    await this.processes.listening(sql);
    await this.#credentials.trust((organizationIds) => loadStates(sql, organizationIds));
    this.#listens = true;
    this.clusters.notified();
  }

  #notificationsLost(): void {
    this.#credentials.distrust();
    if (this.#listens && !this.#closing) {
      this.#options.observe({ name: 'service.warning', message: 'notifications were lost: every key is looked up until they are back' });
    }
    this.#listens = false;
  }

  #changed(payload: string): void {
    const state = parseChange(payload);
    if (state !== undefined) this.#credentials.changed(state);
  }

  #maintain(): void {
    this.#maintaining = this.#deleteOld().catch((cause: unknown) => {
      this.#options.observe({ name: 'service.warning', message: 'old audit entries could not be deleted', cause });
    });
  }

  async #deleteOld(): Promise<void> {
    await this.#database.run((sql) => deleteOldAttempts(sql, this.#now()));
    await this.#database.run((sql) => deleteExpiredInvitations(sql, this.#now()));
    await this.#database.run((sql) => deleteOldUsage(sql, this.#now()));
    await this.#database.run((sql) => deleteOldRequests(sql));
    await this.audit.deleteOlderThan(this.#options.auditDays);
  }
}

function isUniqueViolation(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23505';
}
