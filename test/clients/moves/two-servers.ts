import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { eventually } from '../../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../../support/own-cluster.ts';
import { startPostgres15 } from '../../support/postgres15.ts';
import { ADMIN, type Ended, type Installation, makeInstallation } from '../../support/process.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';
import { serverUrl } from '../../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../../support/service.ts';
import { closeAfterClients } from '../address.ts';

const BINARIES = '/usr/lib/postgresql/15/bin';

/** How much WAL the server that publishes keeps for a slot. */
export const KEPT = "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'";

/** A server that publishes, another one that subscribes, and two processes of the service on both. */
export class TwoServers {
  readonly source: Awaited<ReturnType<typeof startPostgres15>>;
  readonly target: OwnCluster;
  readonly services: readonly [TestService, TestService];
  readonly #installation: Installation;
  readonly #scratch: Scratch;
  readonly #variables: Record<string, string>;
  readonly #movers = new Set<ChildProcess>();
  #isServed = true;

  private constructor(
    servers: { readonly source: TwoServers['source']; readonly target: OwnCluster },
    services: readonly [TestService, TestService],
    files: { readonly installation: Installation; readonly scratch: Scratch; readonly variables: Record<string, string> },
  ) {
    this.source = servers.source;
    this.target = servers.target;
    this.services = services;
    this.#installation = files.installation;
    this.#scratch = files.scratch;
    this.#variables = files.variables;
  }

  /** @param publisher the one with the control database @param url by which it is reached */
  static async start(publisher?: TwoServers['source'], url?: string): Promise<TwoServers> {
    const [source, target] = [publisher ?? (await startPostgres15({ wal_level: 'logical' })), await makeOwnCluster()];
    const [installation, scratch] = [await makeInstallation(), await makeScratch()];
    const variables = {
      ...testVariables(),
      POSTERN_PLACEMENT: 'database',
      DATABASE_URL: url ?? serverUrl(source),
      PATH: `${BINARIES}:${process.env.PATH}`,
      POSTERN_DATA_DIR: scratch.path,
    };
    const services = [await startTestService(variables), await startTestService(variables)] as const;
    const servers = new TwoServers({ source, target }, services, { installation, scratch, variables });
    await servers.set('source', KEPT);
    await writeFile(join(scratch.path, 'other'), target.url, { mode: 0o600 });
    await servers.admin('cluster', 'add', 'other', `file:${join(scratch.path, 'other')}`, '--cap', '1000');
    await servers.admin('cluster', 'drain', 'other');
    return servers;
  }

  async stop(): Promise<void> {
    for (const mover of this.#movers) mover.kill('SIGKILL');
    if (this.#isServed) await this.stopServices();
    await this.#installation.remove();
    await this.source.stop();
    await this.target.remove();
    await this.#scratch.remove();
  }

  async stopServices(): Promise<void> {
    this.#isServed = false;
    for (const service of this.services) await closeAfterClients(service);
  }

  /** One process more, which its caller closes. */
  startService(): Promise<TestService> {
    return startTestService(this.#variables);
  }

  admin(...words: string[]): Promise<Ended> {
    return this.adminWith({}, ...words);
  }

  /** The operator's command line in an environment that differs in some variables. */
  adminWith(variables: Readonly<Record<string, string>>, ...words: string[]): Promise<Ended> {
    return this.#installation.admin(words, { ...this.#variables, ...variables });
  }

  /** Begins a move whose pauses would not end before the test does. */
  startMover({ id }: TestOrganization): { readonly mover: ChildProcess; readonly ended: Promise<Pick<Ended, 'code' | 'stderr'>> } {
    const words = [...ADMIN, 'org', 'move', id, '--to', 'other', '--replicate', '--force', '--pause', '3600'];
    const mover = spawn(process.execPath, words, { env: this.#variables, stdio: ['ignore', 'ignore', 'pipe'] });
    let stderr = '';
    mover.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    this.#movers.add(mover);
    const ended = once(mover, 'close').then(([code]) => {
      this.#movers.delete(mover);
      return { code, stderr };
    });
    return { mover, ended };
  }

  /** Ends what a test has left that failed. */
  async endMovers(): Promise<void> {
    for (const mover of this.#movers) mover.kill('SIGKILL');
    await this.setCopying(true);
  }

  /** A session of a server's superuser. */
  async superuser(at: 'source' | 'target', database = 'postgres'): Promise<pg.Client> {
    const client = new pg.Client({ ...(at === 'source' ? this.source : this.target.superuser), database });
    // The server may be stopped, and the database dropped.
    client.on('error', () => {});
    await client.connect();
    return client;
  }

  async look(at: 'source' | 'target', query: string, values: unknown[] = [], database = 'postgres'): Promise<Record<string, unknown>[]> {
    const client = await this.superuser(at, database);
    try {
      return (await client.query(query, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** In the control database. */
  record(query: string, { id }: TestOrganization): Promise<Record<string, unknown>[]> {
    return this.look('source', query, [id], this.#variables.POSTERN_CONTROL_DATABASE);
  }

  async control(): Promise<pg.Client> {
    return this.superuser('source', this.#variables.POSTERN_CONTROL_DATABASE);
  }

  /** Without workers that copy tables a move waits before any row is copied. */
  async setCopying(isOn: boolean): Promise<void> {
    await this.set('target', `ALTER SYSTEM ${isOn ? 'RESET' : 'SET'} max_sync_workers_per_subscription${isOn ? '' : ' = 0'}`);
  }

  async set(at: 'source' | 'target', change: string): Promise<void> {
    await this.look(at, change);
    await this.look(at, 'SELECT pg_reload_conf()');
  }

  /** Resolves when the organization's tables have been published, and none has been copied. */
  async published({ id }: TestOrganization): Promise<void> {
    await eventually(
      'tables are published',
      async () => (await this.look('source', 'SELECT FROM pg_publication_tables', [], id)).length > 0,
    );
    await eventually(
      'tables are subscribed to',
      async () => (await this.look('target', 'SELECT FROM pg_subscription_rel', [], id)).length > 0,
    );
  }

  /** Slots, roles, publications and subscriptions of moves on both servers. */
  async leftovers({ id }: TestOrganization): Promise<unknown[]> {
    const names = `SELECT slot_name AS name FROM pg_replication_slots UNION ALL SELECT subname FROM pg_subscription
      UNION ALL SELECT rolname FROM pg_roles WHERE rolname LIKE 'postern\\_move\\_%'`;
    const found = [...(await this.look('source', names)), ...(await this.look('target', names))];
    const [database] = await this.look('source', 'SELECT datallowconn AS "isOpen" FROM pg_database WHERE datname = $1', [id]);
    const allow = (isAllowed: boolean) => this.look('source', `ALTER DATABASE ${id} ALLOW_CONNECTIONS ${isAllowed}`);
    if (database?.isOpen === false) await allow(true);
    if (database !== undefined) found.push(...(await this.look('source', 'SELECT pubname AS name FROM pg_publication', [], id)));
    if (database?.isOpen === false) await allow(false);
    return found.map(({ name }) => name);
  }

  /** How often a process of the service has undone a move of the organization. */
  timesUndone({ id }: TestOrganization): number {
    return this.services
      .flatMap(({ observations }) => observations)
      .filter((told) => told.name === 'service.warning' && told.message === `an interrupted move of organization ${id} has been undone`)
      .length;
  }

  async clusterOf({ id }: TestOrganization): Promise<string> {
    return (await this.services[0].service.operator.organization(id)).placement.cluster;
  }
}
