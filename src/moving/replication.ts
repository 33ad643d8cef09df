import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { rolePassword, roleVerifier } from '../auth/derived-secrets.ts';
import { inUse } from '../backend/server-hosts.ts';
import { ServiceError } from '../errors.ts';
import { type AdminLogin, sessionConfig } from '../placement/admin-connection.ts';
import { noteSubscription, replicationName } from '../placement/replication-objects.ts';
import { codeOf } from '../protocol/backend.ts';
import type { ServedPlacement } from '../router/served-cluster.ts';
import { type Contents, type CopiedTable, checkForObstacles, readContents } from './contents.ts';
import { carrySequences, compareCounts, compareTable, compareTables, copyTables, lockTables } from './copy.ts';
import {
  completeDefinitions,
  dumpDefinitions,
  type OpenPlacement,
  openTenantSession,
  runDefinitions,
  type SslMode,
  sslModeOf,
  statementsOf,
  type TenantSession,
} from './definitions.ts';

interface Plan {
  readonly contents: Contents;
  readonly definitions: Definitions;
  /** Those that can be replicated, and the others. */
  readonly replicated: readonly CopiedTable[];
  readonly copiedInPause: readonly CopiedTable[];
  /** Definitions that are carried in the pause. */
  readonly late: readonly string[];
}

/** A session that sees the tables as they were when it began. */
interface Snapshot {
  readonly session: TenantSession;
  /** Where the rows of each table were stored then, by its name there. */
  readonly storage: ReadonlyMap<string, string>;
}

/** A copy of an organization's database on another server that follows the changes, until a short pause completes it. */
export class ReplicatedCopy {
  readonly #from: ServedPlacement;
  readonly #to: ServedPlacement;
  readonly #replication: Replication;
  #plan: Plan | undefined;
  #snapshots: Snapshot[] = [];
  /** Tables that were truncated while they were compared. */
  readonly #truncated: CopiedTable[] = [];

  private constructor(from: ServedPlacement, to: ServedPlacement, replication: Replication) {
    this.#from = from;
    this.#to = to;
    this.#replication = replication;
  }

  /** @throws ServiceError `invalid_request` if the servers cannot be connected; nothing of the organization has been copied then */
  static async open(from: ServedPlacement, to: ServedPlacement): Promise<ReplicatedCopy> {
    return new ReplicatedCopy(from, to, await Replication.open(from, to));
  }

  /** Carries the definitions and copies the rows while clients go on. Resolves when the copy is hardly behind. */
  async follow(): Promise<void> {
    await withSessions(this.#from, this.#to, async (own, copy) => {
      await checkForObstacles(own.client, this.#from.placement, this.#to.placement);
      const definitions = await readDefinitions(own.client, this.#from);
      const contents = await readContents(own.client, this.#from.placement, this.#to.placement, undefined);
      const replicated = contents.tables.filter(({ hasIdentity }) => hasIdentity);
      const copiedInPause = contents.tables.filter(({ hasIdentity }) => !hasIdentity);
      await runDefinitions(copy.client, definitions.beforeRows, this.#to.placement.schema);
      const { early, late } = await divide(copy.client, definitions.afterRows, copiedInPause);
      await runDefinitions(copy.client, early, this.#to.placement.schema);
      this.#plan = { contents, definitions, replicated, copiedInPause, late };
      await this.#replication.add(replicated);
    });
    await this.#replication.copied();
    await this.#vacuum(this.#planned().replicated);
  }

  /** Rows are counted by index in the pause then, and statements are planned well as soon as the copy is in use. */
  async #vacuum(tables: readonly CopiedTable[]): Promise<void> {
    const session = await openTenantSession(this.#to.server, this.#to.placement);
    try {
      for (const { to } of tables) await session.client.query(`VACUUM (ANALYZE) ${to}`);
    } finally {
      await session.end();
    }
  }

  /** Remembers the replicated tables as they are at both servers. In a pause, so that both are the same. */
  async takeSnapshots(limitMs: number): Promise<void> {
    const { contents, replicated } = this.#planned();
    const locking = await openTenantSession(this.#from.server, this.#from.placement);
    try {
      await lockTables(locking.client, contents);
      await this.#replication.caughtUp(limitMs);
      for (const [{ server, placement }, side] of [[this.#from, 'from'] as const, [this.#to, 'to'] as const]) {
        const session = await openTenantSession(server, placement);
        const storage = await storageOf(
          session.client,
          replicated.map((table) => table[side]),
        );
        this.#snapshots.push({ session, storage });
        // A client may keep a table locked; nothing is locked here meanwhile.
        await session.client.query('SET lock_timeout = 0');
        await session.client.query('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY');
        await session.client.query('SELECT 1');
      }
    } finally {
      await locking.end();
    }
  }

  /**
   * Compares the remembered tables by count and checksum, while clients go on. No snapshot sees what TRUNCATE has removed, so a table that
   * was truncated meanwhile is compared in the last pause.
   * @throws ServiceError `internal` for one that differs, `organization_busy` for one that is gone
   */
  async compareSnapshots(): Promise<void> {
    const [own, copy] = this.#snapshots;
    if (own === undefined || copy === undefined) throw new Error('there are two snapshots');
    for (const table of this.#planned().replicated) {
      const difference = await compareUnlocked(own.session.client, copy.session.client, table);
      if (difference === undefined) continue;
      if (!(await this.#isStoredAnew(table, own, copy))) throw difference;
      this.#truncated.push(table);
    }
    await this.#endSnapshots();
  }

  /** Whether a table, or its copy, has been truncated since the snapshots were taken. */
  async #isStoredAnew({ from, to }: CopiedTable, own: Snapshot, copy: Snapshot): Promise<boolean> {
    let isStoredAnew = false;
    // Others than those of the snapshots, which need not notice.
    await withSessions(this.#from, this.#to, async ({ client: here }, { client: there }) => {
      const [now, copied] = [await storageOf(here, [from]), await storageOf(there, [to])];
      isStoredAnew = now.get(from) !== own.storage.get(from) || copied.get(to) !== copy.storage.get(to);
    });
    return isStoredAnew;
  }

  /**
   * Completes the copy in a pause.
   * @returns how much the organization has
   * @throws ServiceError `organization_busy` if its definitions have changed meanwhile, or the copy does not catch up
   */
  async complete(
    source: OpenPlacement,
    target: OpenPlacement,
    limitMs: number,
  ): Promise<{ readonly tables: number; readonly rows: number }> {
    const { contents, definitions, replicated, copiedInPause, late } = this.#planned();
    const { client: reading } = source.session;
    const { client: writing } = target.session;
    await lockTables(reading, contents);
    await this.#replication.caughtUp(limitMs);
    const [now, rows] = await allOf(readDefinitions(reading, source), compareCounts(reading, writing, replicated), this.#replication.end());
    if (!areSame(now, definitions)) throw changedMeanwhile();
    await compareTables(reading, writing, this.#truncated);
    await copyTables(source, target, copiedInPause);
    await runDefinitions(writing, late, target.placement.schema);
    for (const view of contents.views) await writing.query(`REFRESH MATERIALIZED VIEW ${view}`);
    await carrySequences(reading, writing, contents);
    const others = await compareTables(reading, writing, copiedInPause);
    await completeDefinitions(source, target);
    await this.#replication.unpublish();
    return { tables: contents.tables.length, rows: rows + others };
  }

  async close(): Promise<void> {
    await this.#endSnapshots();
    await this.#replication.close();
  }

  async #endSnapshots(): Promise<void> {
    const sessions = this.#snapshots;
    this.#snapshots = [];
    for (const { session } of sessions) await session.end();
  }

  #planned(): Plan {
    if (this.#plan === undefined) throw new Error('the copy has not begun');
    return this.#plan;
  }
}

/** Runs `work` with a session at one placement, and one at another. */
async function withSessions(
  own: ServedPlacement,
  copy: ServedPlacement,
  work: (own: TenantSession, copy: TenantSession) => Promise<void>,
): Promise<void> {
  const reading = await openTenantSession(own.server, own.placement);
  try {
    const writing = await openTenantSession(copy.server, copy.placement);
    await work(reading, writing).finally(() => writing.end());
  } finally {
    await reading.end();
  }
}

/** As Promise.all, but nothing goes on after a failure. */
async function allOf<A, B, C>(...work: readonly [Promise<A>, Promise<B>, Promise<C>]): Promise<[A, B, C]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/** Where the rows of tables are stored, which TRUNCATE changes. */
async function storageOf(client: pg.Client, tables: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const { rows } = await client.query<{ name: string; storage: string | null }>(
    `SELECT name, pg_catalog.pg_relation_filenode(pg_catalog.to_regclass(name))::text AS storage FROM pg_catalog.unnest($1::text[]) AS name`,
    [tables],
  );
  return new Map(rows.map(({ name, storage }) => [name, storage ?? '']));
}

const UNDEFINED_TABLE = '42P01';

/** Compares a table as a snapshot has it. Its locks are released, so that nobody has to wait until other tables have been compared. */
async function compareUnlocked(own: pg.Client, copy: pg.Client, table: CopiedTable): Promise<ServiceError | undefined> {
  for (const client of [own, copy]) await client.query('SAVEPOINT compared');
  const { difference } = await compareTable(own, copy, table).catch((cause: unknown) => {
    throw codeOf(cause) === UNDEFINED_TABLE ? changedMeanwhile() : cause;
  });
  for (const client of [own, copy]) await client.query('ROLLBACK TO compared');
  return difference;
}

function changedMeanwhile(): ServiceError {
  return new ServiceError('organization_busy', 'tables or other definitions were changed while the data was copied', {
    hint: 'Move the organization again when no migration runs.',
  });
}

const POLL_MS = 20;
/** How much the copy may lag when clients are paused, and how long it is waited for that. */
const LAG_MAX_BYTES = 1024 * 1024;
const LAG_TIMEOUT_MS = 120_000;
const CONNECTIONS = 8;

/** Keeps the statement that has a password out of the server's log, its statistics and the view of sessions. */
const UNSEEN = `
  SET log_statement = none; SET log_min_error_statement = panic; SET log_min_duration_statement = -1;
  SET log_min_duration_sample = -1; SET log_transaction_sample_rate = 0; SET track_activities = off;
  SET pg_stat_statements.track_utility = off; SET pgaudit.log = 'none'; SET synchronous_commit = on`;

/** PostgreSQL's logical replication from one server's copy of an organization's database to another's. */
class Replication {
  readonly #name: string;
  readonly #publisher: pg.Client;
  readonly #subscriber: pg.Client;

  private constructor(name: string, publisher: pg.Client, subscriber: pg.Client) {
    this.#name = name;
    this.#publisher = publisher;
    this.#subscriber = subscriber;
  }

  /**
   * Connects the servers. Nothing is replicated yet. What it leaves, also when it fails, is removed with the copy.
   * @throws ServiceError `invalid_request` if the subscriber cannot connect to the publisher
   */
  static async open(from: ServedPlacement, to: ServedPlacement): Promise<Replication> {
    const name = replicationName(from.placement);
    const [publisher, subscriber] = [await superuserOf(from), await superuserOf(to)];
    const replication = new Replication(name, publisher, subscriber);
    try {
      const password = await createRole(publisher, from, name);
      await publisher.query(`CREATE PUBLICATION ${name}`);
      const { oid, server } = await subscribe(subscriber, from, name, password);
      await noteSubscription(publisher, name, oid, server);
      return replication;
    } catch (error) {
      await replication.close();
      throw error;
    }
  }

  /** Begins to copy the tables, and to apply the changes to them. */
  async add(tables: readonly CopiedTable[]): Promise<void> {
    if (tables.length === 0) return;
    await this.#publisher.query(`ALTER PUBLICATION ${this.#name} ADD TABLE ${tables.map(({ from }) => `ONLY ${from}`).join(', ')}`);
    await this.#subscriber.query(`ALTER SUBSCRIPTION ${this.#name} REFRESH PUBLICATION`);
  }

  /** Resolves when all tables have been copied, and the copy is not far behind. @throws ServiceError `internal` if the replication has stopped */
  async copied(): Promise<void> {
    while ((await this.#check()) > 0) await delay(POLL_MS);
    const deadline = performance.now() + LAG_TIMEOUT_MS;
    while (performance.now() < deadline && !(await this.#isAt(await this.#position(), LAG_MAX_BYTES))) {
      await this.#check();
      await delay(POLL_MS);
    }
  }

  /**
   * Resolves when all has been applied that was committed before the call.
   * @throws ServiceError `organization_busy` if that takes longer than `limitMs`, `internal` if the replication has stopped
   */
  async caughtUp(limitMs: number): Promise<void> {
    const position = await this.#position();
    const deadline = performance.now() + limitMs;
    while (!(await this.#isAt(position, 0))) {
      await this.#check();
      if (performance.now() > deadline) throw new ServiceError('organization_busy', 'the copy did not catch up in the pause');
      await delay(POLL_MS);
    }
  }

  /** Ends the replication, and makes all that has been applied durable. */
  async end(): Promise<void> {
    await this.#subscriber.query(`ALTER SUBSCRIPTION ${this.#name} DISABLE`);
    await this.#subscriber.query(`DROP SUBSCRIPTION ${this.#name}`);
  }

  /** Nobody can log in to the publisher's database after the switch. */
  async unpublish(): Promise<void> {
    await this.#publisher.query(`DROP PUBLICATION ${this.#name}`);
  }

  async close(): Promise<void> {
    for (const client of [this.#publisher, this.#subscriber]) await client.end().catch(() => {});
  }

  /** The end of the WAL, which need not have been flushed. */
  async #position(): Promise<string> {
    const { rows } = await this.#publisher.query<{ position: string }>('SELECT pg_catalog.pg_current_wal_insert_lsn()::text AS position');
    return rows[0]?.position ?? '';
  }

  async #isAt(position: string, lagMaxBytes: number): Promise<boolean> {
    const { rows } = await this.#publisher.query(
      `SELECT FROM pg_catalog.pg_stat_replication
       WHERE usename = $1 AND application_name = $1 AND state = 'streaming' AND $2::pg_lsn - replay_lsn <= $3`,
      [this.#name, position, lagMaxBytes],
    );
    return rows.length > 0;
  }

  /** @returns how many tables have not been copied @throws ServiceError `internal` if the replication has stopped */
  async #check(): Promise<number> {
    const { rows } = await this.#subscriber.query<{ enabled: boolean; left: number }>(
      `SELECT subenabled AS enabled, (SELECT pg_catalog.count(*) FROM pg_catalog.pg_subscription_rel
         WHERE srsubid = s.oid AND srsubstate <> 'r')::int AS left
       FROM pg_catalog.pg_subscription s WHERE subname = $1`,
      [this.#name],
    );
    const [found] = rows;
    if (!found?.enabled) throw new ServiceError('internal', 'the replication has stopped; the log of the new server says why');
    const { rows: slots } = await this.#publisher.query<{ lost: boolean }>(
      "SELECT wal_status = 'lost' AS lost FROM pg_catalog.pg_replication_slots WHERE slot_name = $1",
      [this.#name],
    );
    if (slots[0]?.lost !== false)
      throw new ServiceError('internal', 'the replication has stopped: the former server keeps less WAL for it (max_slot_wal_keep_size)');
    return found.left;
  }
}

async function superuserOf({ server, placement: { database } }: ServedPlacement): Promise<pg.Client> {
  const { superuser } = server.platform.cluster;
  if (superuser === undefined) throw new ServiceError('invalid_request', `the role in the URL of ${server.name} is no superuser`);
  const client = new pg.Client(sessionConfig({ ...superuser, database }));
  // A connection lost between two statements fails the next one.
  client.on('error', () => {});
  await client.connect();
  return client;
}

/** A role that may replicate, and reads the organization's tables as their owner does. @returns its password */
async function createRole(session: pg.Client, { server, placement }: ServedPlacement, name: string): Promise<string> {
  const secret = randomBytes(32).toString('base64url');
  const verifier = pg.escapeLiteral(await roleVerifier(secret, name));
  const isOld = server.platform.cluster.serverVersion < 160_000;
  await session.query(`${UNSEEN}; CREATE ROLE ${name} LOGIN REPLICATION INHERIT CONNECTION LIMIT ${CONNECTIONS} PASSWORD ${verifier}`);
  await session.query(`GRANT ${pg.escapeIdentifier(placement.role)} TO ${name}${isOld ? '' : ' WITH INHERIT TRUE, SET FALSE'}`);
  return rolePassword(secret, name);
}

interface Subscription {
  readonly oid: string;
  /** Its system identifier. */
  readonly server: string;
}

async function subscribe(session: pg.Client, from: ServedPlacement, name: string, password: string): Promise<Subscription> {
  const { cluster } = from.server.platform;
  const connection = conninfo({ ...cluster, user: name, password, database: from.placement.database });
  const options = 'enabled = true, copy_data = true, streaming = on, disable_on_error = true, run_as_owner = false';
  await session.query(UNSEEN);
  const create = `CREATE SUBSCRIPTION ${name} CONNECTION ${pg.escapeLiteral(connection)} PUBLICATION ${name} WITH (${options})`;
  await session.query(create).catch((cause: unknown) => {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new ServiceError('invalid_request', `the other server cannot subscribe: ${reason}`, { cause });
  });
  const { rows } = await session.query<Subscription>(
    `SELECT s.oid::text AS oid, own.system_identifier::text AS server
     FROM pg_catalog.pg_subscription s, pg_catalog.pg_control_system() AS own WHERE s.subname = $1`,
    [name],
  );
  const [subscription] = rows;
  if (subscription === undefined) throw new ServiceError('internal', 'the subscription is gone');
  return subscription;
}

/** As libpq reads it. */
function conninfo(login: AdminLogin): string {
  const { host, port, user, password, database, ssl } = inUse(login);
  const parts = { host, port, user, password, dbname: database, connect_timeout: 10, ...tlsParts(sslModeOf(ssl)) };
  return Object.entries(parts)
    .map(([name, value]) => `${name}='${String(value).replace(/['\\]/g, '\\$&')}'`)
    .join(' ');
}

/**
 * The server that subscribes has no certificates of this machine. With channel binding it needs none: whoever answers has to know the
 * password's verifier, which Postern has just stored at the publisher, and SCRAM proves it together with the certificate of this connection.
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-CHANNEL-BINDING
 */
function tlsParts(mode: SslMode | undefined): Readonly<Record<string, string>> {
  if (mode === undefined) return {};
  return { sslmode: 'require', gssencmode: 'disable', ...(mode === 'require' ? {} : { channel_binding: 'require' }) };
}

/** An organization's definitions at one time. */
interface Definitions {
  readonly beforeRows: readonly string[];
  readonly afterRows: readonly string[];
  /** Differs after a table was made again or a column was altered, though the definitions may be the same as before. */
  readonly versions: string;
}

const VERSIONS = `
  SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(
    pg_catalog.concat_ws(' ', c.oid::text, a.attnum::text, a.xmin::text), ',' ORDER BY c.oid, a.attnum), '')) AS versions
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`;

/** Without the publication of the replication. */
async function readDefinitions(client: pg.Client, { server, placement }: ServedPlacement): Promise<Definitions> {
  const { rows } = await client.query<{ versions: string }>(VERSIONS);
  const own = new RegExp(`^(?:CREATE|ALTER) PUBLICATION ${replicationName(placement)}\\b`);
  const dump = async (section: 'pre-data' | 'post-data') => {
    const definitions = await dumpDefinitions(server.platform.cluster, placement, true, section);
    return (await statementsOf(definitions, placement.schema)).filter((statement) => !own.test(statement));
  };
  const [beforeRows, afterRows] = await Promise.all([dump('pre-data'), dump('post-data')]);
  return { beforeRows, afterRows, versions: rows[0]?.versions ?? '' };
}

function areSame(some: Definitions, others: Definitions): boolean {
  return JSON.stringify(some) === JSON.stringify(others);
}

/** Triggers and rules: also those that fire when changes are applied, which the source's have done already. */
const FIRES =
  /^(?:CREATE (?:CONSTRAINT )?TRIGGER |CREATE RULE |COMMENT ON (?:TRIGGER|RULE) |ALTER TABLE [^;]* (?:ENABLE|DISABLE) [A-Z ]*(?:TRIGGER|RULE) )/;
const FOREIGN_KEY = /^ALTER TABLE (?:ONLY )?((?:"[^"]*"|[^\s"])+)\s+ADD CONSTRAINT (?:"[^"]*"|[^\s"])+ FOREIGN KEY /;

/**
 * Divides the definitions that follow rows into those that an empty table can have before its rows are replicated, and those that have to
 * wait: for all that fires, and for foreign keys of tables that are copied in the pause.
 * @param client at the target, where the tables are
 */
async function divide(
  client: pg.Client,
  afterRows: readonly string[],
  copiedInPause: readonly CopiedTable[],
): Promise<{ readonly early: string[]; readonly late: string[] }> {
  const [early, late]: [string[], string[]] = [[], []];
  for (const statement of afterRows) {
    const table = FOREIGN_KEY.exec(statement)?.[1];
    const waits = FIRES.test(statement) || (table !== undefined && (await isOne(client, table, copiedInPause)));
    (waits ? late : early).push(statement);
  }
  return { early, late };
}

async function isOne(client: pg.Client, table: string, tables: readonly CopiedTable[]): Promise<boolean> {
  const { rows } = await client.query(
    'SELECT FROM pg_catalog.unnest($2::text[]) AS name WHERE pg_catalog.to_regclass(name) = pg_catalog.to_regclass($1)',
    [table, tables.map(({ to }) => to)],
  );
  return rows.length > 0;
}
