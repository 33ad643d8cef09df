import { organizationOfPool, scopeOfPool } from '../backend/organization-pool.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Organization } from '../catalog/organization.ts';
import { TOTALS } from '../catalog/usage.ts';
import {
  type ChangeableSetting,
  type Config,
  ConfigError,
  isChangeable,
  parseSetting,
  type RunningConfig,
  readConfig,
  SETTING_NAMES,
} from '../config.ts';
import { ServiceError } from '../errors.ts';
import { restrictedRole, rolesOf } from '../placement/restricted-roles.ts';
import { packageVersion } from '../runtime/package-folder.ts';
import type { TableOptions } from '../syntax/operator-commands.ts';
import type { Activity, ClientActivity, OrganizationActivity, PoolActivity, ServerActivity, Totals } from './activity.ts';
import type { Clusters } from './clusters.ts';

/** The types of the console's columns, as PostgreSQL names them. */
export type ColumnType = 'text' | 'int4' | 'int8' | 'numeric';

/** Null: SQL's NULL. Numbers are whole. */
export type Cell = string | number | null;

export interface TableData {
  readonly columns: readonly (readonly [name: string, type: ColumnType])[];
  readonly rows: readonly (readonly Cell[])[];
}

/** Where the tables have their rows from. */
export interface TableSources {
  readonly config: Config;
  readonly catalog: Pick<Catalog, 'organizations' | 'clusters'>;
  readonly clusters: Clusters;
  readonly activity: Activity;
  /** Of the embedded server. @throws ServiceError while their folder cannot be read */
  readonly backups: () => Promise<readonly ShownBackup[]>;
}

/** A base backup. Times are RFC 3339. */
interface ShownBackup {
  /** Of the server. */
  readonly system: string;
  readonly time: string;
  readonly ended: string;
  readonly verified: string | null;
  readonly bytes: number;
  readonly walBytes: number;
  readonly isUsable: boolean;
  readonly timeline: number;
  readonly major: number;
}

interface Table {
  readonly columns: TableData['columns'];
  /** PgBouncer has none like it. */
  readonly isOurs?: boolean;
  rows(sources: TableSources): TableData['rows'] | Promise<TableData['rows']>;
}

/** The release whose tables these are. */
const PGBOUNCER_VERSION = '1.25.2';

/** As `SHOW VERSION` has it. */
export function consoleVersion(): string {
  return `PgBouncer ${PGBOUNCER_VERSION} (Postern ${packageVersion()})`;
}

/** What the console says as the parameter `server_version`: PgBouncer's is like this. */
export const CONSOLE_SERVER_VERSION = `${PGBOUNCER_VERSION}/bouncer`;

/** The names of all tables, those of PgBouncer first. */
export function tableNames(isOurs: boolean): string[] {
  return Object.entries(TABLES).flatMap(([name, table]) => (isOurs === (table.isOurs === true) ? name.toUpperCase() : []));
}

/**
 * Whether there is such a table, and for whom.
 * @param name in lower case
 */
export function findTable(name: string): Pick<Table, 'columns' | 'isOurs'> | undefined {
  return Object.hasOwn(TABLES, name) ? TABLES[name] : undefined;
}

/**
 * The rows of a table that there is, in all processes of the service together.
 * @throws ServiceError `not_ready`; 42703 for a column that it does not have
 */
export async function readTable(name: string, options: TableOptions, sources: TableSources): Promise<TableData> {
  const table = TABLES[name];
  if (table === undefined) throw new ServiceError('not_found', `there is no table "${name}"`);
  const { columns } = table;
  const compare = comparison(columns, options.orderBy);
  const all = await table.rows(sources);
  const { like, limit } = options;
  const found = like === undefined ? [...all] : all.filter((row) => row.some((cell) => typeof cell === 'string' && isLike(cell, like)));
  if (compare !== undefined) found.sort(compare);
  return { columns, rows: limit === undefined ? found : found.slice(0, limit) };
}

type Row = readonly Cell[];

function comparison(columns: TableData['columns'], orderBy: TableOptions['orderBy']): ((a: Row, b: Row) => number) | undefined {
  if (orderBy === undefined) return undefined;
  const at = columns.findIndex(([name]) => name === orderBy.column);
  if (at < 0) {
    const names = columns.map(([name]) => name).join(', ');
    throw new ServiceError('invalid_request', `column "${orderBy.column}" does not exist`, {
      sqlstate: '42703',
      hint: `There are: ${names}.`,
    });
  }
  const sign = orderBy.isDescending ? -1 : 1;
  // As in PostgreSQL, NULL is more than everything.
  return (a, b) => sign * compareCells(a[at] ?? null, b[at] ?? null);
}

function compareCells(a: Cell, b: Cell): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return a < b ? -1 : Number(a > b);
}

/**
 * SQL's LIKE. The time grows with the product of both lengths and no faster.
 * @see https://www.postgresql.org/docs/current/functions-matching.html#FUNCTIONS-LIKE
 */
function isLike(text: string, pattern: string): boolean {
  /** Where to go on after a mismatch: with one character more for the last `%`. */
  let [retryText, retryPattern] = [-1, -1];
  let [at, atPattern] = [0, 0];
  while (at < text.length) {
    const expected = pattern[atPattern];
    const isEscaped = expected === '\\' && atPattern + 1 < pattern.length;
    if (expected === '%') {
      [retryText, retryPattern] = [at, atPattern + 1];
      atPattern += 1;
    } else if (expected !== undefined && (expected === '_' || text[at] === (isEscaped ? pattern[atPattern + 1] : expected))) {
      at += 1;
      atPattern += isEscaped ? 2 : 1;
    } else if (retryPattern >= 0) {
      retryText += 1;
      [at, atPattern] = [retryText, retryPattern];
    } else return false;
  }
  while (pattern[atPattern] === '%') atPattern += 1;
  return atPattern === pattern.length;
}

const text = (...names: readonly string[]) => names.map((name) => [name, 'text'] as const);
const int4 = (...names: readonly string[]) => names.map((name) => [name, 'int4'] as const);
const int8 = (...names: readonly string[]) => names.map((name) => [name, 'int8'] as const);
const numeric = (...names: readonly string[]) => names.map((name) => [name, 'numeric'] as const);

/** What PgBouncer counts, in its order. */
const STATISTICS: readonly { readonly name: string; readonly of: (totals: Totals) => number }[] = [
  { name: 'server_assignment_count', of: ({ leases }) => leases },
  { name: 'xact_count', of: ({ transactions }) => transactions },
  { name: 'query_count', of: ({ requests }) => requests },
  { name: 'bytes_received', of: ({ bytesIn }) => bytesIn },
  { name: 'bytes_sent', of: ({ bytesOut }) => bytesOut },
  { name: 'xact_time', of: ({ heldMs }) => heldMs * 1_000 },
  { name: 'query_time', of: ({ requestMs }) => requestMs * 1_000 },
  { name: 'wait_time', of: ({ waitMs }) => waitMs * 1_000 },
  { name: 'client_parse_count', of: ({ parses }) => parses },
  { name: 'server_parse_count', of: ({ serverParses }) => serverParses },
  { name: 'bind_count', of: ({ binds }) => binds },
];

/** Of a time, the average of one; of anything else, how many a second. */
const PER: Readonly<Record<string, keyof Totals>> = { xact_time: 'transactions', query_time: 'requests', wait_time: 'leases' };

function totalsOf({ now }: Pick<OrganizationActivity, 'now'>): number[] {
  return STATISTICS.map(({ of }) => Math.round(of(now)));
}

function averagesOf({ lately, perSecond }: Pick<OrganizationActivity, 'lately' | 'perSecond'>): number[] {
  return STATISTICS.map(({ name, of }) => {
    const per = PER[name];
    return Math.round(per === undefined ? of(perSecond) : of(lately) / Math.max(1, lately[per]));
  });
}

const NAMES = STATISTICS.map(({ name }) => name);
const IN_STATS: Readonly<Record<string, string>> = { total_bytes_received: 'total_received', total_bytes_sent: 'total_sent' };
const AVERAGES: Readonly<Record<string, string>> = { avg_bytes_received: 'avg_recv', avg_bytes_sent: 'avg_sent' };
/** PgBouncer's own names of what it adds up. */
const IN_TOTALS: Readonly<Record<string, string>> = {
  bytes_received: 'client_bytes',
  bytes_sent: 'server_bytes',
  client_parse_count: 'ps_client_parse_count',
  server_parse_count: 'ps_server_parse_count',
  bind_count: 'ps_bind_count',
};

const CONNECTION_COLUMNS = [
  ...text('type', 'user', 'database', 'replication', 'state', 'addr'),
  ...int4('port'),
  ...text('local_addr'),
  ...int4('local_port'),
  ...text('connect_time', 'request_time'),
  ...int4('wait', 'wait_us', 'close_needed'),
  ...text('ptr', 'link'),
  ...int4('remote_pid'),
  ...text('tls', 'application_name'),
  ...int4('prepared_statements', 'id'),
];

const TABLES: Readonly<Record<string, Table>> = {
  stats: {
    columns: [
      ...text('database'),
      ...numeric(...NAMES.map((name) => IN_STATS[`total_${name}`] ?? `total_${name}`)),
      ...numeric(...NAMES.map((name) => AVERAGES[`avg_${name}`] ?? `avg_${name}`)),
    ],
    rows: async ({ activity }) => (await statisticsOf(activity)).map((one) => [one.organizationId, ...totalsOf(one), ...averagesOf(one)]),
  },
  stats_totals: {
    columns: [...text('database'), ...numeric(...NAMES)],
    rows: async ({ activity }) => (await statisticsOf(activity)).map((one) => [one.organizationId, ...totalsOf(one)]),
  },
  stats_averages: {
    columns: [...text('database'), ...numeric(...NAMES.map((name) => (/parse|bind/.test(name) ? `avg_${name}` : name)))],
    rows: async ({ activity }) => (await statisticsOf(activity)).map((one) => [one.organizationId, ...averagesOf(one)]),
  },
  totals: {
    columns: [...text('name'), ...numeric('value')],
    async rows({ activity }) {
      const sum = sumOf(await statisticsOf(activity));
      const named = (prefix: string, values: readonly number[]) =>
        values.map((value, at) => [`${prefix}_${IN_TOTALS[NAMES[at] ?? ''] ?? NAMES[at]}`, value]);
      return [...named('total', totalsOf(sum)), ...named('avg', averagesOf(sum))];
    },
  },
  pools: {
    columns: [
      ...text('database', 'user'),
      ...int4('cl_active', 'cl_waiting', 'cl_active_cancel_req', 'cl_waiting_cancel_req', 'sv_active', 'sv_active_cancel'),
      ...int4('sv_being_canceled', 'sv_idle', 'sv_used', 'sv_tested', 'sv_login', 'maxwait', 'maxwait_us'),
      ...text('pool_mode', 'load_balance_hosts'),
    ],
    rows: async ({ activity }) => (await activity.pools()).map(poolRow).sort(byText),
  },
  databases: {
    columns: [
      ...text('name', 'host'),
      ...int4('port'),
      ...text('database', 'force_user'),
      ...int4('pool_size', 'min_pool_size', 'reserve_pool_size', 'server_lifetime'),
      ...text('pool_mode', 'load_balance_hosts'),
      ...int4('max_connections', 'current_connections', 'max_client_connections', 'current_client_connections', 'paused', 'disabled'),
    ],
    rows: databaseRows,
  },
  clients: { columns: CONNECTION_COLUMNS, rows: async ({ activity }) => (await activity.clients()).map(clientRow) },
  servers: { columns: CONNECTION_COLUMNS, rows: async ({ activity }) => (await activity.servers()).map(serverRow) },
  users: {
    columns: [
      ...text('name', 'pool_size', 'reserve_pool_size', 'pool_mode'),
      ...int4('max_user_connections', 'current_connections', 'max_user_client_connections', 'current_client_connections'),
    ],
    async rows(sources) {
      const { POSTERN_BACKENDS_PER_TENANT: backends, POSTERN_CLIENTS_PER_TENANT: clients } = sources.config;
      return (await organizationsInUse(sources)).map(({ id, limits, servers, sessions }) => [
        id,
        '',
        '',
        null,
        backends,
        servers,
        limits.sessions ?? clients,
        sessions,
      ]);
    },
  },
  lists: { columns: [...text('list'), ...int4('items')], rows: listRows },
  config: { columns: text('key', 'value', 'default', 'changeable'), rows: ({ config }) => configRows(config) },
  state: {
    columns: text('key', 'value'),
    async rows({ catalog }) {
      const [active, paused] = await Promise.all([catalog.organizations.list({ status: 'active' }), catalog.organizations.paused()]);
      const isPaused = active.length > 0 && active.every(({ id }) => paused.has(id));
      return [
        ['active', isPaused ? 'no' : 'yes'],
        ['paused', isPaused ? 'yes' : 'no'],
        ['suspended', 'no'],
      ];
    },
  },
  version: { columns: text('version'), rows: () => [[consoleVersion()]] },
  organizations: {
    isOurs: true,
    columns: [
      ...text('organization', 'name', 'email', 'status', 'cluster', 'placement'),
      ...int4('paused', 'sessions', 'waiting', 'servers'),
      ...int8('requests', 'bytes_received', 'bytes_sent'),
      ...text('created'),
    ],
    async rows(sources) {
      const [found, statistics] = await Promise.all([organizationsInUse(sources), sources.activity.statistics()]);
      const byId = new Map(statistics.map((one) => [one.organizationId, one.now]));
      return found.map(({ id, name, email, status, placement, createdAt, isPaused, sessions, waiting, servers }) => {
        const { requests = 0, bytesIn = 0, bytesOut = 0 } = byId.get(id) ?? {};
        const counts = [Number(isPaused), sessions, waiting, servers, requests, bytesIn, bytesOut];
        return [id, name, email, status, placement.cluster, placement.kind, ...counts, timeOf(createdAt.getTime())];
      });
    },
  },
  pins: {
    isOurs: true,
    columns: [
      ...text('organization', 'ptr'),
      ...int4('id'),
      ...text('reason', 'explanation'),
      ...int4('remote_pid'),
      ...text('state', 'since'),
    ],
    async rows({ activity }) {
      return (await activity.clients()).flatMap(({ pool, sessionId, number, pins, backendProcessId, state, since }) =>
        pins.map(({ reason, explanation }) => {
          return [organizationOfPool(pool), sessionId, numberOf(number), reason, explanation, backendProcessId, state, timeOf(since)];
        }),
      );
    },
  },
  limits: {
    isOurs: true,
    columns: [...text('limit'), ...int8('value', 'used'), ...text('organization')],
    rows: limitRows,
  },
  clusters: {
    isOurs: true,
    columns: [
      ...text('cluster', 'state'),
      ...int4('organizations', 'cap', 'weight'),
      ...text('placements'),
      ...int4('sv_max', 'sv_active', 'sv_idle'),
    ],
    rows: clusterRows,
  },
  locks: {
    isOurs: true,
    columns: [...text('cluster', 'organization'), ...int4('pid'), ...text('blocked_by', 'locktype', 'mode'), ...int8('wait_us')],
    rows: lockRows,
  },
  backups: {
    isOurs: true,
    columns: [
      ...text('system_identifier', 'backup', 'whole', 'verified'),
      ...int8('bytes', 'wal_bytes'),
      ...int4('usable', 'timeline', 'major'),
    ],
    async rows({ backups }) {
      return (await backups()).map(({ system, time, ended, verified, bytes, walBytes, isUsable, timeline, major }) => {
        return [system, time, ended, verified, bytes, walBytes, Number(isUsable), timeline, major];
      });
    },
  },
};

async function statisticsOf(activity: Activity): Promise<OrganizationActivity[]> {
  const all = await activity.statistics();
  return all.sort((a, b) => (a.organizationId < b.organizationId ? -1 : 1));
}

function sumOf(all: readonly OrganizationActivity[]): Omit<OrganizationActivity, 'organizationId'> {
  const sum = (of: 'now' | 'lately' | 'perSecond'): Totals => {
    const totals = Object.fromEntries(TOTALS.map((name) => [name, 0])) as Totals;
    for (const one of all) for (const name of TOTALS) totals[name] += one[of][name];
    return totals;
  };
  return { now: sum('now'), lately: sum('lately'), perSecond: sum('perSecond') };
}

function poolRow(pool: PoolActivity): Cell[] {
  const { clients, waiting, active, leaving, idle, opening, longestWaitMs } = pool;
  const [wait, waitUs] = durationOf(longestWaitMs);
  const counts = [clients, waiting, 0, 0, active, 0, leaving, idle, 0, 0, opening, wait, waitUs];
  return [organizationOfPool(pool.pool), userOf(pool.pool), ...counts, 'transaction', null];
}

function byText(a: Row, b: Row): number {
  return compareCells(a[0] ?? null, b[0] ?? null) || compareCells(a[1] ?? null, b[1] ?? null);
}

/** The role of the organization that the pool's backends are logged in as. */
function userOf(pool: string): string {
  const scope = scopeOfPool(pool);
  return scope === undefined ? pool : restrictedRole(organizationOfPool(pool), scope);
}

interface OrganizationInUse extends Organization {
  readonly isPaused: boolean;
  readonly sessions: number;
  readonly waiting: number;
  readonly servers: number;
}

/** All that have not been dropped, with what they use. */
async function organizationsInUse({ catalog, activity }: TableSources): Promise<OrganizationInUse[]> {
  const [organizations, paused, pools] = await Promise.all([
    catalog.organizations.list(),
    catalog.organizations.paused(),
    activity.pools(),
  ]);
  const byId = new Map<string, { sessions: number; waiting: number; servers: number }>();
  for (const { pool, clients, waiting, active, idle, opening, leaving } of pools) {
    const id = organizationOfPool(pool);
    const sums = byId.get(id) ?? { sessions: 0, waiting: 0, servers: 0 };
    byId.set(id, sums);
    sums.sessions += clients + waiting;
    sums.waiting += waiting;
    sums.servers += active + idle + opening + leaving;
  }
  return organizations
    .filter(({ status }) => status !== 'dropped')
    .map((organization) => {
      return {
        ...organization,
        isPaused: paused.has(organization.id),
        ...(byId.get(organization.id) ?? { sessions: 0, waiting: 0, servers: 0 }),
      };
    });
}

async function databaseRows(sources: TableSources): Promise<Cell[][]> {
  const { config, clusters } = sources;
  const { POSTERN_BACKENDS_PER_TENANT: backends, POSTERN_CLIENTS_PER_TENANT: clients } = config;
  return (await organizationsInUse(sources)).map(({ id, placement, limits, status, isPaused, servers, sessions }) => {
    const { host = null, port = 0 } = clusters.up.get(placement.cluster)?.platform.cluster ?? {};
    const ownLimits = [backends, 0, 0, 0];
    const counts = [backends, servers, limits.sessions ?? clients, sessions, Number(isPaused), Number(status !== 'active')];
    return [id, host, port, placement.database, placement.role, ...ownLimits, 'transaction', null, ...counts];
  });
}

/** PgBouncer's words for the states of its clients. */
const STATES: Readonly<Record<ClientActivity['state'], string>> = {
  idle: 'idle',
  active: 'active',
  'idle in transaction': 'active',
  'idle in failed transaction': 'active',
  'waiting for a backend': 'waiting',
};

function clientRow(client: ClientActivity): Cell[] {
  const { pool, state, sessionId, number, backendProcessId, cipher, applicationName, waitMs } = client;
  const organization = organizationOfPool(pool);
  const link = backendProcessId === 0 ? '' : String(backendProcessId);
  const ends = [client.address, client.port, client.localAddress, client.localPort];
  const times = [timeOf(client.connectedAt), timeOf(client.since), ...durationOf(waitMs)];
  const about = [0, sessionId, link, 0, cipher, applicationName, 0, numberOf(number)];
  return ['C', userOf(pool), organization, 'none', STATES[state], ...ends, ...times, ...about];
}

function serverRow({ pool, state, address, port, localAddress, localPort, connectedAt, usedAt, processId }: ServerActivity): Cell[] {
  const ends = [address, port, localAddress, localPort];
  const shown = state === 'leaving' ? 'being_canceled' : state;
  const about = [0, String(processId), '', processId, '', '', 0, processId];
  return ['S', userOf(pool), organizationOfPool(pool), 'none', shown, ...ends, timeOf(connectedAt), timeOf(usedAt), 0, 0, ...about];
}

/** Requests over HTTP have greater numbers, for which the column has no room: their `ptr` names them. */
function numberOf(number: number): number {
  return number < 2 ** 31 ? number : 0;
}

/** As PgBouncer writes it. */
function timeOf(at: number): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** In whole seconds, and microseconds of the last one. */
function durationOf(ms: number): [seconds: number, microseconds: number] {
  const microseconds = Math.max(0, Math.round(ms * 1_000));
  return [Math.floor(microseconds / 1_000_000), microseconds % 1_000_000];
}

async function listRows(sources: TableSources): Promise<Cell[][]> {
  const [organizations, pools] = await Promise.all([organizationsInUse(sources), sources.activity.pools()]);
  const clients = pools.reduce((sum, { clients: count, waiting }) => sum + count + waiting, 0);
  const servers = pools.reduce((sum, { active, idle, opening, leaving }) => sum + active + idle + opening + leaving, 0);
  const backendsMax = sources.clusters.opened().reduce((sum, cluster) => sum + cluster.backendsMax, 0);
  return [
    ['databases', organizations.length],
    ['users', organizations.length],
    ['peers', 0],
    ['pools', pools.length],
    ['peer_pools', 0],
    ['free_clients', Math.max(0, sources.config.POSTERN_CLIENTS_MAX - clients)],
    ['used_clients', clients],
    ['login_clients', 0],
    ['free_servers', Math.max(0, backendsMax - servers)],
    ['used_servers', servers],
    ['dns_names', 0],
    ['dns_zones', 0],
    ['dns_queries', 0],
    ['dns_pending', 0],
  ];
}

/** PgBouncer's names of settings that there are here. It has times in seconds. */
const PGBOUNCER_SETTINGS: ReadonlyMap<string, keyof Config> = new Map([
  ['client_login_timeout', 'POSTERN_LOGIN_TIMEOUT_MS'],
  ['default_pool_size', 'POSTERN_BACKENDS_PER_TENANT'],
  ['idle_transaction_timeout', 'POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS'],
  ['listen_addr', 'POSTERN_HOST'],
  ['listen_port', 'POSTERN_PG_PORT'],
  ['max_client_conn', 'POSTERN_CLIENTS_MAX'],
  ['max_db_client_connections', 'POSTERN_CLIENTS_PER_TENANT'],
  ['max_db_connections', 'POSTERN_BACKENDS_PER_TENANT'],
  ['max_user_connections', 'POSTERN_BACKENDS_PER_TENANT'],
  ['query_timeout', 'POSTERN_WIRE_STATEMENT_TIMEOUT_MS'],
  ['query_wait_timeout', 'POSTERN_QUEUE_TIMEOUT_MS'],
  ['server_idle_timeout', 'POSTERN_BACKEND_IDLE_MS'],
]);
const MS = /_MS$/;
const SECONDS = /^\d+(?:\.\d{1,3})?$/;

/** What nobody is shown: passwords, and what passwords are derived from. */
const SECRET_SETTINGS: ReadonlySet<string> = new Set(['DATABASE_URL', 'POSTERN_SECRET', 'POSTERN_OPERATOR_KEY']);

/** The settings of the service, first under PgBouncer's names. */
function configRows(config: Config): Cell[][] {
  const defaults = readConfig({});
  const theirs = [...PGBOUNCER_SETTINGS].map(([name, setting]) => {
    const inSeconds = (value: Config[keyof Config]) => String(MS.test(setting) ? Number(value) / 1_000 : value);
    return [name, inSeconds(config[setting]), inSeconds(defaults[setting]), shownChangeable(setting)];
  });
  const names = [...new Set([...Object.keys(defaults), ...Object.keys(config)])].sort();
  const ours = names.map((name) => [name, shownSetting(name, config), shownSetting(name, defaults), shownChangeable(name)]);
  return [...theirs, ['pool_mode', 'transaction', 'transaction', 'no'], ...ours];
}

function shownChangeable(name: string): 'yes' | 'no' {
  return isChangeable(name) ? 'yes' : 'no';
}

function shownSetting(name: string, config: Config): Cell {
  const value: unknown = new Map<string, unknown>(Object.entries(config)).get(name);
  if (value === undefined) return null;
  return SECRET_SETTINGS.has(name) ? '***' : String(value);
}

/** A change that an operator wants. */
interface SettingChange {
  readonly setting: ChangeableSetting;
  /** As in the environment. */
  readonly value: string;
}

/**
 * @param name of one of the settings of {@link configRows}, in lower case
 * @param value `default`: what the service was started with
 * @throws ServiceError 42704 where there is no such setting, 55P02 if it cannot change while the service runs, 22023 with the range
 */
export function settingChange(name: string, value: string, { initial }: RunningConfig): SettingChange {
  const theirs = PGBOUNCER_SETTINGS.get(name);
  const setting = theirs ?? SETTING_NAMES.find((known) => known.toLowerCase() === name);
  if (setting === undefined && name !== 'pool_mode') throw new ServiceError('not_found', `unrecognized configuration parameter "${name}"`);
  if (setting === undefined || !isChangeable(setting)) {
    throw new ServiceError('invalid_request', `parameter "${name}" cannot be changed now`, {
      sqlstate: '55P02',
      hint: 'It is read when the service starts. SHOW CONFIG says which may change.',
    });
  }
  if (value.toLowerCase() === 'default') return { setting, value: String(initial[setting]) };
  const text = theirs !== undefined && SECONDS.test(value) ? String(Math.round(Number(value) * 1_000)) : value;
  try {
    parseSetting(setting, text);
  } catch (cause) {
    const range = cause instanceof ConfigError ? cause.message : 'is not valid';
    throw new ServiceError('invalid_request', `invalid value for parameter "${name}": "${value}"`, {
      hint: theirs === undefined ? `It ${range}.` : `It is given in seconds: ${setting} ${range}.`,
      cause,
    });
  }
  return { setting, value: text };
}

/** Those of the service with what the busiest organization has of them, then those that organizations have of their own. */
async function limitRows(sources: TableSources): Promise<Cell[][]> {
  const { config, clusters, activity, catalog } = sources;
  const [clients, pools, organizations] = await Promise.all([activity.clients(), activity.pools(), catalog.organizations.list()]);
  const inUse = (one: PoolActivity) => one.active + one.idle + one.opening + one.leaving;
  const busiest = (counts: ReadonlyMap<string, number>) => [...counts.values()].reduce((most, count) => Math.max(most, count), 0);
  const sum = (of: readonly ClientActivity[]) => {
    const counts = new Map<string, number>();
    for (const { pool } of of) counts.set(organizationOfPool(pool), (counts.get(organizationOfPool(pool)) ?? 0) + 1);
    return counts;
  };
  const servers = new Map<string, number>();
  for (const one of pools) servers.set(organizationOfPool(one.pool), (servers.get(organizationOfPool(one.pool)) ?? 0) + inUse(one));
  const sessions = sum(clients.filter(({ door }) => door === 'wire'));
  const requests = sum(clients.filter(({ door }) => door === 'http'));
  const all: Cell[][] = [
    ['POSTERN_CLIENTS_MAX', config.POSTERN_CLIENTS_MAX, [...sessions.values()].reduce((total, count) => total + count, 0)],
    ['POSTERN_CLIENTS_PER_TENANT', config.POSTERN_CLIENTS_PER_TENANT, busiest(sessions)],
    [
      'POSTERN_BACKENDS_MAX',
      clusters.opened().reduce((total, { backendsMax }) => total + backendsMax, 0),
      pools.reduce((total, one) => total + inUse(one), 0),
    ],
    ['POSTERN_BACKENDS_PER_TENANT', config.POSTERN_BACKENDS_PER_TENANT, busiest(servers)],
    ['POSTERN_HTTP_CONNECTIONS_MAX', config.POSTERN_HTTP_CONNECTIONS_MAX, null],
    ['POSTERN_HTTP_REQUESTS_PER_TENANT', config.POSTERN_HTTP_REQUESTS_PER_TENANT, busiest(requests)],
    ['POSTERN_DISK_PER_TENANT_BYTES', config.POSTERN_DISK_PER_TENANT_BYTES, null],
  ];
  const own = organizations
    .filter(({ status }) => status !== 'dropped')
    .flatMap(({ id, limits }): Cell[][] => {
      const values: Cell[][] = [
        ['disk', limits.diskBytes, null],
        ['sessions', limits.sessions, sessions.get(id) ?? 0],
        ['requests-per-second', limits.requestsPerSecond, null],
        ['statement-ms', limits.statementMs, null],
      ];
      return values.filter(([, value]) => value !== null).map((row) => [...row, id]);
    });
  return [...all.map((row) => [...row, null]), ...own];
}

async function clusterRows({ catalog, clusters, activity }: TableSources): Promise<Cell[][]> {
  const [counted, servers] = await Promise.all([catalog.clusters.counted(), activity.servers()]);
  const answering = new Map(clusters.snapshot().map(({ name, isAnswering }) => [name, isAnswering]));
  return counted.map(({ name, organizations, cap, weight, placements, isDraining }) => {
    const isFull = cap !== null && organizations >= cap;
    const state = answering.get(name) !== true ? 'down' : isDraining ? 'draining' : isFull ? 'full' : 'open';
    const own = servers.filter(({ cluster }) => cluster === name);
    const active = own.filter((one) => one.state === 'active').length;
    const max = clusters.opened().find((cluster) => cluster.name === name)?.backendsMax ?? null;
    return [name, state, organizations, cap, weight, placements.join(','), max, active, own.filter((one) => one.state === 'idle').length];
  });
}

interface WaitingLock {
  readonly pid: number;
  readonly role: string;
  readonly blockedBy: string;
  readonly locktype: string;
  readonly mode: string;
  readonly waitUs: string | null;
}

/** Who waits for a lock, on the servers that answer. */
async function lockRows({ catalog, clusters }: TableSources): Promise<Cell[][]> {
  const roles = new Map<string, string>();
  for (const { id, placement } of await catalog.organizations.list()) {
    for (const role of rolesOf(placement.role)) roles.set(role, id);
  }
  const onEach = [...clusters.up.values()].map(async ({ name, platform }) => {
    const { rows } = await platform.run((session) => session.query<WaitingLock>(WAITING_LOCKS));
    return rows.map(({ pid, role, blockedBy, locktype, mode, waitUs }) => {
      return [name, roles.get(role) ?? role, pid, blockedBy, locktype, mode, waitUs === null ? null : Number(waitUs)];
    });
  });
  return (await Promise.all(onEach)).flat();
}

const WAITING_LOCKS = `
  SELECT l.pid, coalesce(a.usename, '') AS role, pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(l.pid), ',') AS "blockedBy",
    l.locktype, l.mode, (1e6 * extract(epoch FROM pg_catalog.clock_timestamp() - l.waitstart))::bigint AS "waitUs"
  FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid)
  WHERE NOT l.granted
  ORDER BY l.waitstart`;
