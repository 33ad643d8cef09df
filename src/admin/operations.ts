import { userInfo } from 'node:os';
import { Catalog } from '../catalog/catalog.ts';
import type { ClusterRegistry, ClusterSettings, CountedCluster } from '../catalog/clusters.ts';
import type { Organization } from '../catalog/organization.ts';
import { type Config, readSecret } from '../config.ts';
import { DiskSpace } from '../embedded/disk-space.ts';
import { findPostgres } from '../embedded/embedded.ts';
import { ServiceError } from '../errors.ts';
import { Dumps } from '../moving/dumps.ts';
import { Mover } from '../moving/mover.ts';
import { checkSchemaCopies, SchemaCopies } from '../moving/schema-copies.ts';
import type { Origin } from '../observation.ts';
import { type AdminLogin, parseUrl, withSession } from '../placement/admin-connection.ts';
import { type Address, hasCitus } from '../placement/citus.ts';
import { disableWorker, moveSchema, setUpCitus } from '../placement/citus-setup.ts';
import { type Cluster, controlConnection } from '../placement/cluster.ts';
import { type ClusterOptions, clusterOptions, findCluster, prepareCluster } from '../placement/cluster-setup.ts';
import { SignUps } from '../router/accounts.ts';
import { Activity } from '../router/activity.ts';
import { Clusters, NewPlacements } from '../router/clusters.ts';
import { Clones } from '../router/moves.ts';
import { Operator } from '../router/operator.ts';
import { Sessions } from '../router/sessions.ts';
import { examine, type Finding, readServerState, readSurroundings } from './doctor.ts';

const HEADINGS = ['ID', 'STATUS', 'CLUSTER', 'PLACEMENT', 'CREATED', 'NAME', 'E-MAIL'];

export function organizationTable(organizations: readonly Organization[]): string {
  const rows = organizations.map(({ id, status, placement, createdAt, name, email }) => [
    id,
    status,
    placement.cluster,
    placement.kind,
    createdAt.toISOString(),
    name,
    email,
  ]);
  return table(HEADINGS, rows);
}

/** In columns, for people. */
export function table(headings: readonly string[], cells: readonly (readonly string[])[]): string {
  const rows = cells.map((row) => row.map(printable));
  const widths = headings.map((heading, column) => Math.max(heading.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [headings, ...rows].map(line).join('\n');
}

/** Organizations choose their names, so control characters in them must not reach the terminal. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\ufffd');
}

/** What a command has to say: to people, and with `--json` to programs. */
export interface Said {
  readonly text: string;
  readonly data: object;
  /** How the process ends, where it is not with 0. */
  readonly exitCode?: number;
}

export interface OperatorSession {
  readonly operator: Operator;
  /** Without the limits of sign-ups over HTTP. */
  readonly signUps: SignUps;
  readonly clusters: ClusterAdministration;
  readonly citus: CitusAdministration;
  readonly clones: Clones;
  /** @throws ServiceError `unsupported_statement` where organizations of the default cluster in the schema placement cannot be cloned */
  checkSchemaCopies(): Promise<void>;
  readonly mover: Mover;
  readonly dumps: Dumps;
  /** Looks at what may need attention. */
  examine(): Promise<Finding[]>;
  readonly catalog: Catalog;
  /** As the service has it, if it is started in the same environment. */
  readonly config: Config;
  /** Of the processes of the service. */
  readonly activity: Activity;
  /** The operator, by the machine's user name. */
  readonly origin: Origin;
  close(): Promise<void>;
}

const WAIT_MS = 5_000;

/**
 * Opens what operators need, without the doors, on the control database and PostgreSQL of a service with the same configuration.
 * @throws EmbeddedError, ClusterError
 */
export async function openOperator(config: Config): Promise<OperatorSession> {
  const observe = () => {};
  const { admin, secret, folder } = await findPostgres(config);
  const disk = folder === undefined ? undefined : new DiskSpace(folder);
  const shared = { secret, ...clusterOptions(config, observe) };
  const first = await findCluster({ admin, ...shared, waitMs: WAIT_MS });
  const catalog = await Catalog.open({ connection: controlConnection(first), observe, auditDays: config.POSTERN_AUDIT_DAYS });
  const find = (name: string, url: string) => findCluster({ name, admin: url, ...shared, waitMs: 0 });
  const clusters = new Clusters({ first, prepare: find, config, catalog, observe, workers: 1 });
  await clusters.refresh();
  const placements = new NewPlacements(clusters, catalog.clusters, config.POSTERN_PLACEMENT);
  const operator = new Operator(catalog, clusters);
  const signUps = new SignUps({ catalog, clusters, placements, mode: 'open', signupsPerHour: undefined, observe });
  return {
    operator,
    signUps,
    catalog,
    config,
    activity: new Activity(new Sessions(catalog.processes)),
    clones: new Clones({ catalog, clusters, signUps, operator, schemas: new SchemaCopies(), observe, disk }),
    checkSchemaCopies: () => checkSchemaCopies(clusters.default),
    citus: new CitusAdministration({ catalog, first, url: config.DATABASE_URL, shared }),
    clusters: new ClusterAdministration(catalog.clusters, first, shared),
    mover: new Mover(catalog, clusters, warn, disk),
    dumps: new Dumps(clusters),
    async examine() {
      const names = (await catalog.clusters.list()).map(({ name }) => name);
      const servers = names.map((name) => ({ name, read: async () => readServerState((await clusters.ready(name)).platform) }));
      return examine(servers, await readSurroundings(config, folder), config);
    },
    origin: { surface: 'admin', sourceIp: '127.0.0.1', userAgent: `postern-admin (${userName()})` },
    async close() {
      await clusters.close();
      await catalog.close();
    },
  };
}

function warn(message: string): void {
  process.stderr.write(`postern: warning: ${message}\n`);
}

/** A container may run as a uid without a user name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.());
  }
}

/** A cluster that somebody wants to add. */
export interface AddedCluster extends ClusterSettings {
  readonly name: string;
  readonly urlSource: string;
}

/** A cluster as it is seen now. */
export interface ListedCluster extends CountedCluster {
  /** Whether it takes organizations: `open`, `draining` or `full`; or `down`. */
  readonly state: string;
}

const ANSWER_TIMEOUT_MS = 2_000;

/** What operators do to the PostgreSQL servers that organizations live on. Every process of the service finds each change at once. */
class ClusterAdministration {
  readonly #registry: ClusterRegistry;
  readonly #first: Cluster;
  readonly #shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>;

  /** @param first the one that the service is started with @param shared what is the same for all clusters */
  constructor(registry: ClusterRegistry, first: Cluster, shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>) {
    this.#registry = registry;
    this.#first = first;
    this.#shared = shared;
  }

  /**
   * Sets the server up, and has new organizations added to it.
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`
   */
  async add(added: AddedCluster): Promise<void> {
    const url = readSecret(added.urlSource);
    const known = await this.#registry.list();
    if (known.some(({ name }) => name === added.name)) {
      throw new ServiceError('invalid_request', `there is a cluster "${added.name}" already`);
    }
    const { systemIdentifier } = await prepareCluster({ ...this.#shared, name: added.name, admin: url, waitMs: 0 });
    if (systemIdentifier !== undefined && systemIdentifier === this.#first.systemIdentifier) {
      throw new ServiceError('invalid_request', 'this is the server that the service is started with: the cluster "default"');
    }
    await this.#registry.add({ ...added, systemIdentifier });
  }

  /** Has every process find the server of a former time, unless it is known. It takes no new organizations but clones. */
  async addPast(name: string, urlSource: string): Promise<void> {
    if ((await this.#registry.list()).some((known) => known.name === name)) return;
    // It has the system identifier of the server of now.
    await this.#registry.add({ name, urlSource, placements: ['database', 'schema'], weight: 1, cap: 0, systemIdentifier: undefined });
  }

  /** All clusters, the default one first. */
  async list(): Promise<ListedCluster[]> {
    const clusters = await this.#registry.counted();
    return Promise.all(clusters.map(async (cluster) => ({ ...cluster, state: await this.#stateOf(cluster) })));
  }

  /** New organizations go elsewhere, or go there again. @throws ServiceError `not_found` */
  setDraining(name: string, isDraining: boolean): Promise<void> {
    return this.#registry.setDraining(name, isDraining);
  }

  /** Nothing on the server is changed. @throws ServiceError `not_found`, `invalid_request` */
  remove(name: string): Promise<void> {
    return this.#registry.remove(name);
  }

  async #stateOf({ urlSource, isDraining, cap, organizations }: CountedCluster): Promise<string> {
    if (urlSource !== null && !(await answers(urlSource))) return 'down';
    if (isDraining) return 'draining';
    return cap !== null && organizations >= cap ? 'full' : 'open';
  }
}

async function answers(urlSource: string): Promise<boolean> {
  try {
    const login: AdminLogin = parseUrl(readSecret(urlSource));
    await withSession(login, async () => {}, ANSWER_TIMEOUT_MS);
    return true;
  } catch {
    return false;
  }
}

interface CitusOptions {
  readonly catalog: Pick<Catalog, 'clusters' | 'moves'>;
  /** The cluster that the service is started with. */
  readonly first: Cluster;
  /** How a superuser logs in there; undefined: it is embedded. */
  readonly url: string | undefined;
  /** What is the same for all clusters. */
  readonly shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>;
}

interface Coordinator {
  readonly admin: AdminLogin;
  readonly cluster: Cluster;
}

/** What operators do to coordinators of Citus and their workers. Each call takes a cluster's name; undefined: the default one. */
class CitusAdministration {
  readonly #options: CitusOptions;

  constructor(options: CitusOptions) {
    this.#options = options;
  }

  /**
   * @returns a line for each node
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async setUp(workers: readonly Address[], cluster?: string): Promise<string> {
    const { allowXpath = false } = this.#options.shared;
    return setUpCitus({ ...(await this.#coordinator(cluster)), workers, allowXpath });
  }

  /**
   * @returns how many organizations are refused until the worker is set up again
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async disable(worker: Address, name?: string): Promise<number> {
    const { admin, cluster } = await this.#coordinator(name);
    return withSession({ ...admin, database: cluster.sharedDatabase }, (session) => disableWorker(session, worker));
  }

  /**
   * Moves an organization's tables to another worker of its cluster, and records it.
   * @returns what has been done
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async move({ id, placement }: Organization, target: Address, origin: Origin): Promise<string> {
    const coordinator = await this.#coordinator(placement.cluster);
    const { sharedDatabase } = coordinator.cluster;
    const isDistributed = await withSession({ ...coordinator.admin, database: sharedDatabase }, hasCitus);
    if (placement.kind !== 'schema' || !isDistributed) throw new ServiceError('invalid_request', 'the organization is not on Citus');
    const { tables, isOnline } = await moveSchema({ ...coordinator, placement, target });
    await this.#options.catalog.moves.movedByCitus(id, origin);
    const clients = isOnline ? 'its clients went on writing' : 'its clients waited with their writes';
    return `${id} has its tables on ${target.host}:${target.port}: ${tables}; ${clients}`;
  }

  async #coordinator(name: string | undefined): Promise<Coordinator> {
    const { first, url, shared, catalog } = this.#options;
    if (name === undefined || name === first.name) {
      if (url === undefined) throw new ServiceError('invalid_request', 'Citus needs a server of yours, in DATABASE_URL');
      return { admin: parseUrl(url), cluster: first };
    }
    const source = (await catalog.clusters.list()).find((cluster) => cluster.name === name)?.urlSource;
    if (typeof source !== 'string') throw new ServiceError('not_found', `there is no cluster "${name}"`);
    const admin = readSecret(source);
    return { admin: parseUrl(admin), cluster: await findCluster({ ...shared, name, admin, waitMs: 0 }) };
  }
}
