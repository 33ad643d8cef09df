import { once } from 'node:events';
import { organizationOfPool } from '../backend/organization-pool.ts';
import { OPERATORS } from '../catalog/audit/records.ts';
import type { ApiKey } from '../catalog/key-rows.ts';
import { limitsInForce, type OrganizationLimits } from '../catalog/limits.ts';
import type { Organization } from '../catalog/organization.ts';
import type { Config } from '../config.ts';
import { ServiceError } from '../errors.ts';
import type { ClientActivity } from '../router/activity.ts';
import { type ListedCluster, type OperatorSession, organizationTable, printable, type Said, table } from './operations.ts';

/*
 * What operators look at, and what they end. Lists are in a fixed order, so that a part of one is followed by what comes after its last row.
 */

/** Which part of a list is wanted. */
export interface Part {
  /** Undefined: all. */
  readonly limit: number | undefined;
  /** The id of the row that the one before has ended with. */
  readonly after: string | undefined;
}

interface Rows<Row> {
  readonly rows: readonly Row[];
  readonly idOf: (row: Row) => string;
  readonly text: (rows: readonly Row[]) => string;
  readonly json: (row: Row) => object;
}

/** @throws ServiceError `not_found` for an id that is not in the list */
function partOf<Row>({ rows, idOf, text, json }: Rows<Row>, { limit = rows.length, after }: Part): Said {
  const from = after === undefined ? 0 : rows.findIndex((row) => idOf(row) === after) + 1;
  if (after !== undefined && from === 0) throw new ServiceError('not_found', `the list has no ${printable(after)}`);
  const part = rows.slice(from, from + limit);
  const last = part.at(-1);
  const nextAfter = last !== undefined && from + limit < rows.length ? idOf(last) : null;
  const more = nextAfter === null ? '' : `\nmore: --after ${nextAfter}`;
  return { text: `${text(part)}${more}`, data: { data: part.map(json), nextAfter } };
}

export async function listOrganizations({ operator }: OperatorSession, part: Part): Promise<Said> {
  const rows = await operator.organizations();
  return partOf({ rows, idOf: ({ id }) => id, text: organizationTable, json: organizationJson }, part);
}

const CLUSTER_HEADINGS = ['NAME', 'STATE', 'ORGANIZATIONS', 'CAP', 'WEIGHT', 'PLACEMENTS', 'URL'];

/** The PostgreSQL servers that organizations live on. */
export async function listClusters({ clusters }: OperatorSession, part: Part): Promise<Said> {
  const text = (rows: readonly ListedCluster[]) =>
    table(
      CLUSTER_HEADINGS,
      rows.map(({ name, state, organizations, cap, weight, placements, urlSource }) =>
        [name, state, organizations, cap ?? '-', weight, placements.join(','), urlSource ?? '-'].map(String),
      ),
    );
  const json = ({ name, state, organizations, cap, weight, placements, urlSource }: ListedCluster) => {
    return { name, state, organizations, cap, weight, placements, urlSource };
  };
  return partOf({ rows: await clusters.list(), idOf: ({ name }) => name, text, json }, part);
}

export function organizationJson({ id, name, email, status, createdAt, placement }: Organization): object {
  return { id, name, email, status, createdAt, cluster: placement.cluster, placement: placement.kind, database: placement.database };
}

/** All that is known of one. @throws ServiceError `not_found` */
export async function showOrganization({ operator, catalog, activity }: OperatorSession, id: string): Promise<Said> {
  const organization = await operator.organization(id);
  const [keys, clones, paused, pools] = await Promise.all([
    catalog.keys.list(id),
    catalog.organizations.clones(id),
    catalog.organizations.paused(),
    activity.pools(),
  ]);
  const own = pools.filter(({ pool }) => organizationOfPool(pool) === id);
  const sum = (of: (pool: (typeof own)[number]) => number) => own.reduce((all, pool) => all + of(pool), 0);
  const data = {
    ...organizationJson(organization),
    role: organization.placement.role,
    isPaused: paused.has(id),
    keys: keys.length,
    clones: clones.map(({ organization: clone }) => clone.id),
    sessions: sum(({ clients, waiting }) => clients + waiting),
    backends: sum(({ active, idle, opening }) => active + idle + opening),
  };
  const lines = Object.entries(data).map(([name, value]) => [name, value instanceof Date ? value.toISOString() : String(value)]);
  return { text: table(['PROPERTY', 'VALUE'], lines), data };
}

/** What applies to an organization, and what of it an operator has set. @throws ServiceError `not_found` */
export async function showLimits({ operator, config }: OperatorSession, id: string): Promise<Said> {
  return limitsSaid(await operator.organization(id), config);
}

/** Sets some of an organization's own limits, and those of its clones; null: the default again. @throws ServiceError `not_found`, `invalid_request` */
export async function setLimits(
  { operator, config, origin }: OperatorSession,
  id: string,
  changes: Partial<OrganizationLimits>,
): Promise<Said> {
  return limitsSaid(await operator.setLimits(id, changes, origin), config);
}

function limitsSaid(organization: Organization, config: Config): Said {
  const { id, limits } = organization;
  const inForce = limitsInForce(organization, config);
  const own = (value: number | null) => (value === null ? '-' : String(value));
  const rows = [
    ['disk bytes', own(limits.diskBytes), String(inForce.diskBytes ?? 'any')],
    ['sessions', own(limits.sessions), String(inForce.sessions)],
    ['requests per second', own(limits.requestsPerSecond), String(inForce.requestsPerSecond ?? 'any')],
    ['statement ms', own(limits.statementMs), String(inForce.statementMs === 0 ? 'any' : inForce.statementMs)],
  ];
  return { text: table(['LIMIT', 'OWN', 'IN FORCE'], rows), data: { id, own: limits, inForce } };
}

const KEY_HEADINGS = ['ID', 'PREFIX', 'SCOPE', 'CREATED', 'LAST USED', 'EXPIRES', 'NAME'];

/** @throws ServiceError `not_found` */
export async function listKeys({ operator, catalog }: OperatorSession, id: string, part: Part): Promise<Said> {
  await operator.organization(id);
  const rows = await catalog.keys.list(id);
  const text = (keys: readonly ApiKey[]) =>
    table(
      KEY_HEADINGS,
      keys.map((key) => {
        const times = [key.createdAt, key.lastUsedAt, key.expiresAt].map((at) => at?.toISOString() ?? '-');
        return [key.id, key.prefix, key.scope, ...times, key.name ?? ''];
      }),
    );
  const json = ({ id: keyId, prefix, scope, name, createdAt, createdBy, lastUsedAt, expiresAt, networks, replacedBy }: ApiKey) => {
    return { id: keyId, prefix, scope, name, createdAt, createdBy, lastUsedAt, expiresAt, networks, replacedBy };
  };
  return partOf({ rows, idOf: (key) => key.id, text, json }, part);
}

/** Sessions that were opened with it end. @throws ServiceError `not_found` */
export async function revokeKey({ catalog, origin }: OperatorSession, keyId: string): Promise<Said> {
  const organizationId = await catalog.keys.organizationOf(keyId);
  if (organizationId === undefined) throw new ServiceError('not_found', `there is no key "${printable(keyId)}"`);
  await catalog.keys.revokeByOperator(organizationId, keyId, origin);
  return { text: `${keyId} of ${organizationId} is revoked`, data: { id: keyId, organizationId } };
}

const SESSION_HEADINGS = ['ID', 'ORGANIZATION', 'DOOR', 'STATE', 'FROM', 'CONNECTED', 'BACKEND', 'APPLICATION'];

/** Those of all organizations, or of one, the earliest first. @throws ServiceError `not_found` */
export async function listSessions({ operator, activity }: OperatorSession, id: string | undefined, part: Part): Promise<Said> {
  if (id !== undefined) await operator.organization(id);
  const rows = (await activity.clients()).filter(({ pool }) => id === undefined || organizationOfPool(pool) === id);
  const text = (sessions: readonly ClientActivity[]) =>
    table(
      SESSION_HEADINGS,
      sessions.map(({ sessionId, pool, door, state, address, port, connectedAt, backendProcessId, applicationName }) => {
        const from = port === 0 ? address : `${address} ${port}`;
        const backend = backendProcessId === 0 ? '-' : String(backendProcessId);
        return [sessionId, organizationOfPool(pool), door, state, from, new Date(connectedAt).toISOString(), backend, applicationName];
      }),
    );
  const json = ({
    sessionId,
    pool,
    door,
    state,
    address,
    port,
    connectedAt,
    since,
    backendProcessId,
    applicationName,
    pins,
  }: ClientActivity) => {
    const times = { connectedAt: new Date(connectedAt), stateSince: new Date(since) };
    const reasons = pins.map(({ reason }) => reason);
    const about = { sourceIp: address, sourcePort: port, backendProcessId, applicationName, pins: reasons };
    return { id: sessionId, organizationId: organizationOfPool(pool), door, state, ...times, ...about };
  };
  return partOf({ rows, idOf: ({ sessionId }) => sessionId, text, json }, part);
}

/** @throws ServiceError `not_found`, `invalid_request` */
export async function endSession({ activity, operator, origin }: OperatorSession, sessionId: string): Promise<Said> {
  const [, number] = /^ses_[0-9a-f]{8}([0-9a-f]{8})$/.exec(sessionId) ?? [];
  if (number === undefined) throw new ServiceError('not_found', `there is no session "${printable(sessionId)}"`);
  const organizationId = await activity.end({ number: Number.parseInt(number, 16), sessionId });
  operator.record(organizationId, 'sessions.end', origin);
  return { text: `${sessionId} of ${organizationId} has been told to end`, data: { id: sessionId, organizationId } };
}

const STATS_HEADINGS = ['ORGANIZATION', 'REQUESTS', 'TRANSACTIONS', 'LEASES', 'BYTES IN', 'BYTES OUT', 'REQUESTS/S'];

/** What organizations have done since the service started, the busiest lately first. */
export async function showStatistics({ activity }: OperatorSession, part: Part): Promise<Said> {
  const rows = (await activity.statistics()).sort((a, b) => b.perSecond.requests - a.perSecond.requests || b.now.requests - a.now.requests);
  const text = (all: typeof rows) =>
    table(
      STATS_HEADINGS,
      all.map(({ organizationId, now, perSecond }) => {
        const counts = [now.requests, now.transactions, now.leases, now.bytesIn, now.bytesOut].map(String);
        return [organizationId, ...counts, perSecond.requests.toFixed(2)];
      }),
    );
  return partOf({ rows, idOf: ({ organizationId }) => organizationId, text: (some) => text([...some]), json: (one) => one }, part);
}

const AUDIT_PAGE = 1_000;

/** The latest entries. @throws ServiceError `not_found`, `invalid_request` */
export async function showAudit({ operator, catalog }: OperatorSession, id: string, { limit, after }: Part): Promise<Said> {
  if (id !== OPERATORS) await operator.organization(id);
  const page = await catalog.audit.list(id, { limit: limit ?? 50, ...(after === undefined ? {} : { after }) });
  const rows = page.data.map(({ seq, occurredAt, action, outcome, sourceIp, actor, statement }) => {
    return [
      String(seq),
      occurredAt,
      action,
      outcome.status,
      sourceIp ?? '-',
      actor?.keyPrefix ?? '-',
      (statement?.sql ?? '').slice(0, 100),
    ];
  });
  const more = page.nextCursor === null ? '' : `\nmore: --after ${page.nextCursor}`;
  const text = table(['SEQ', 'TIME', 'ACTION', 'OUTCOME', 'FROM', 'KEY', 'STATEMENT'], rows);
  return { text: `${text}${more}`, data: { data: page.data, nextAfter: page.nextCursor } };
}

/** @returns what has been found; the command has failed if the chain is broken @throws ServiceError `not_found` */
export async function verifyAudit({ operator, catalog }: OperatorSession, id: string): Promise<Said> {
  if (id !== OPERATORS) await operator.organization(id);
  const found = await catalog.audit.verify(id);
  if (found.ok) return { text: `${id}: ${found.count} entries, none changed or missing`, data: found };
  const bad = found.firstBad;
  return {
    text: `${id}: the chain is broken at entry ${bad?.seq ?? found.headSeq} (${bad?.reason ?? 'unknown'}); ${found.count} entries before it are right`,
    data: found,
    exitCode: 1,
  };
}

/** Prints every entry, a line of JSON each, the newest first. @throws ServiceError `not_found` */
export async function exportAudit({ operator, catalog }: OperatorSession, id: string): Promise<string> {
  if (id !== OPERATORS) await operator.organization(id);
  let after: string | undefined;
  do {
    const page = await catalog.audit.list(id, { limit: AUDIT_PAGE, ...(after === undefined ? {} : { after }) });
    for (const entry of page.data) if (!process.stdout.write(`${JSON.stringify(entry)}\n`)) await once(process.stdout, 'drain');
    after = page.nextCursor ?? undefined;
  } while (after !== undefined);
  return '';
}
