import { randomInt } from 'node:crypto';
import type { Observe } from '../observation.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import { AuditLog } from './audit/log.ts';
import { ClusterRegistry } from './clusters.ts';
import { type ControlConnection, ControlPool, PgLocks, type Sql } from './control-pool.ts';
import { CredentialCache, type PauseListener } from './credential-cache.ts';
import {
  CREDENTIALS,
  type Credential,
  type FormerKey,
  type KeyState,
  loadByDigest,
  loadByOrganization,
  loadStates,
  notifyChange,
  type OrganizationCredentials,
} from './credentials.ts';
import { DiskQuotaRegistry } from './disk-quotas.ts';
import { KeyLastUsed, KeyRegistry } from './keys.ts';
import { isOver } from './limits.ts';
import { migrate } from './migrations.ts';
import { MoveRegistry } from './moves.ts';
import { NotificationChannel } from './notification-channel.ts';
import { type ChangeOrganization, lockOrganization, type Organization } from './organization.ts';
import { OrganizationRegistry } from './organizations.ts';
import { PauseRegistry } from './pauses.ts';
import { AuthenticationFailures, CancelForwarding, ConnectionSlotRequests, deleteOldRequests, ProcessRequests } from './processes.ts';
import { deleteOldStatistics, QueryStatistics, TextFileWatch } from './query-statistics.ts';
import { SavedQueries } from './saved-queries.ts';
import { deleteExpiredInvitations, deleteOldAttempts, SignUpRegistry } from './sign-ups.ts';
import { Topics } from './topics.ts';
import { deleteOldUsage, Usage } from './usage.ts';

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

/**
 * Organizations, their keys and their audit logs. They are stored in the control database, schema `postern`, which any
 * number of processes may share. Every method throws ServiceError `not_ready` when the database cannot be reached.
 */
export class Catalog {
  readonly audit: AuditLog;
  readonly keys: KeyRegistry;
  readonly savedQueries: SavedQueries;
  readonly locks: PgLocks;
  readonly clusters: ClusterRegistry;
  readonly organizations: OrganizationRegistry;
  /** Requests to the other processes that share the database. */
  readonly processes: ProcessRequests;
  /** Cancel requests for sessions of other processes. */
  readonly cancels: CancelForwarding;
  /** Failed logins, which count in all processes. */
  readonly failures: AuthenticationFailures;
  /** Sessions that other processes need more. */
  readonly slots: ConnectionSlotRequests;
  readonly queryStatistics: QueryStatistics;
  readonly signUps: SignUpRegistry;
  readonly pauses: PauseRegistry;
  readonly diskQuotas: DiskQuotaRegistry;
  readonly moves: MoveRegistry;
  readonly usage: Usage;
  readonly #options: CatalogOptions;
  readonly #now: () => Date;
  readonly #database: ControlPool;
  readonly #credentials = new CredentialCache((...paused) => this.#onPause(...paused));
  readonly #topics: Topics;
  readonly #channel: NotificationChannel;
  readonly #keyUse: KeyLastUsed;
  readonly #queryTexts: TextFileWatch;
  readonly #maintenance: Maintenance;
  /** This process's number among those that share the database. */
  readonly #process = randomInt(1, 2 ** 31);
  #listens = false;
  /** Whether the log says that notifications were lost. */
  #wereLost = false;
  #onPause: PauseListener = () => {};
  #closing = false;

  private constructor(options: CatalogOptions) {
    const { connection, observe } = options;
    this.#options = options;
    this.#now = options.now ?? (() => new Date());
    this.#database = new ControlPool(connection, options.onOutOfMemory);
    this.locks = new PgLocks(connection, this.#database);
    this.#topics = new Topics({ own: this.#process, database: this.#database, observe });
    this.#topics.topic({ ...CREDENTIALS, receive: (state) => this.#credentials.changed(state) });
    this.clusters = new ClusterRegistry(this.#topics, this.#database);
    this.queryStatistics = new QueryStatistics(this.#database, this.#now);
    this.usage = new Usage(this.#database, this.#now);
    this.#queryTexts = new TextFileWatch(this.#database, observe);
    this.audit = new AuditLog({ database: this.#database, observe, now: this.#now });
    const change: ChangeOrganization = (...work) => this.#change(...work);
    const parts = {
      database: this.#database,
      audit: this.audit,
      now: this.#now,
      change,
      changed: (state: KeyState) => this.#credentials.changed(state),
    };
    this.#maintenance = new Maintenance({ ...parts, auditDays: options.auditDays, observe });
    this.keys = new KeyRegistry(parts);
    this.organizations = new OrganizationRegistry(parts);
    this.signUps = new SignUpRegistry({ ...parts, process: this.#process });
    this.pauses = new PauseRegistry(change);
    this.diskQuotas = new DiskQuotaRegistry(parts);
    this.moves = new MoveRegistry({ ...parts, process: this.#process });
    this.savedQueries = new SavedQueries(parts);
    this.#keyUse = new KeyLastUsed(this.#database, this.#now, (...use) => this.#credentials.used(...use));
    this.processes = new ProcessRequests(this.#topics, this.#database, observe);
    this.cancels = new CancelForwarding(this.#topics);
    this.failures = new AuthenticationFailures(this.#topics);
    this.slots = new ConnectionSlotRequests(this.#topics);
    this.#channel = new NotificationChannel(connection, this.#topics.channels, {
      opened: (sql) => this.#listening(sql),
      notified: (payload, channel) => this.#topics.received(channel, payload),
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
      catalog.#maintenance.start();
      catalog.#queryTexts.start();
      catalog.usage.start();
      catalog.queryStatistics.start();
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

  /** Whether it is known in memory that an organization has more data than it may have. */
  isOverQuota(organizationId: string): boolean {
    return isOver(this.#credentials.diskStateOf(organizationId) ?? 'within');
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
    this.#topics.close();
    this.#closing = true;
    this.locks.reserved.close();
    this.processes.close();
    await Promise.all([
      this.audit.close(),
      this.#keyUse.flush(),
      this.#maintenance.stop(),
      this.#queryTexts.stop(),
      this.usage.stop(),
      this.queryStatistics.stop(),
      this.#channel.close(),
    ]);
    await this.#database.close();
  }

  /** Changes an organization or its keys, in one transaction with its audit entry, and notifies every process. */
  async #change<T>(organizationId: string, work: (sql: Sql, organization: Organization) => Promise<T>): Promise<T> {
    const { result, state } = await this.#database.changeFor(organizationId, async (sql) => {
      const organization = await lockOrganization(sql, organizationId);
      return { result: await work(sql, organization), state: await notifyChange(sql, organizationId) };
    });
    this.#credentials.changed(state);
    return result;
  }

  async #listening(sql: Sql): Promise<void> {
    // The lock shows that this process is alive; see SignUpRegistry.takeInterrupted.
    await sql`select pg_advisory_lock_shared(${ADVISORY_LOCKS.process}, ${this.#process})`;
    await this.processes.listening(sql);
    await this.#credentials.trust((organizationIds) => loadStates(sql, organizationIds));
    this.#listens = true;
    this.clusters.notified();
    if (this.#wereLost) this.#options.observe({ name: 'service.warning', message: 'notifications are back' });
    this.#wereLost = false;
  }

  #notificationsLost(): void {
    this.#credentials.distrust();
    if (this.#listens && !this.#closing) {
      this.#wereLost = true;
      this.#options.observe({ name: 'service.warning', message: 'notifications were lost: every key is looked up until they are back' });
    }
    this.#listens = false;
  }
}

const EVERY_MS = 3_600_000;

interface MaintenanceOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  /** How long audit entries are kept. */
  readonly auditDays: number;
  readonly now: () => Date;
  readonly observe: Observe;
}

/** Deletes rows of the control database that are too old, at the start and then every hour. */
class Maintenance {
  readonly #options: MaintenanceOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(options: MaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#run(), EVERY_MS);
    this.#run();
  }

  /** Begins no further deletion. Resolves when nothing is being deleted any more. */
  stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    return this.#running;
  }

  #run(): void {
    this.#running = this.#deleteOld();
  }

  /** What cannot be deleted now is reported, and tried again the next time; the rest is deleted all the same. */
  async #deleteOld(): Promise<void> {
    const { database, audit, auditDays, now, observe } = this.#options;
    const deletions: Readonly<Record<string, () => Promise<unknown>>> = {
      'counts of sign-ups': () => database.run((sql) => deleteOldAttempts(sql, now())),
      invitations: () => database.run((sql) => deleteExpiredInvitations(sql, now())),
      'query statistics': () => database.run((sql) => deleteOldStatistics(sql, now())),
      'usage figures': () => database.run((sql) => deleteOldUsage(sql, now())),
      'requests between processes': () => database.run((sql) => deleteOldRequests(sql)),
      'audit entries': () => audit.deleteOlderThan(auditDays),
    };
    for (const [rows, deleteRows] of Object.entries(deletions)) {
      if (this.#timer === undefined) return;
      try {
        await deleteRows();
      } catch (cause) {
        observe({ name: 'service.warning', message: `old ${rows} could not be deleted`, cause });
      }
    }
  }
}
