import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { rolePassword, roleVerifier } from '../../../auth/derived-secrets.ts';
import type { CopiedTable } from '../../../copies/contents.ts';
import { type SslMode, sslModeOf } from '../../../copies/libpq-tls.ts';
import { ServiceError } from '../../../errors.ts';
import { type AdminLogin, sessionConfig } from '../../../placement/admin-connection.ts';
import { noteSubscription, replicationName } from '../../../placement/replication-objects.ts';
import type { ServedPlacement } from '../../../router/served-cluster.ts';

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
export class Replication {
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
function conninfo({ host, port, user, password, database, ssl }: AdminLogin): string {
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
