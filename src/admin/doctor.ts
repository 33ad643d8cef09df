import { X509Certificate } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { listBackups } from '../backups/backups.ts';
import type { Config } from '../config.ts';
import { DiskSpace, type DiskUse, isLow } from '../embedded/disk-space.ts';
import { openFilesLimit } from '../file-descriptors.ts';
import { endOfSupport } from '../node-release.ts';
import type { Platform } from '../placement/cluster.ts';
import { concernAboutReleases, concernsAbout, readServerAge, type ServerAge } from '../placement/server-release.ts';
import { clearTextWarning, isLoopback } from '../ports.ts';
import { textOf } from '../protocol/backend.ts';
import { sessionsNeeded } from '../router/served-cluster.ts';
import { connectionLimits } from '../workers/shared-parts.ts';

/** What has been looked at, and whether it is as it should be. */
export interface Finding {
  readonly needsAttention: boolean;
  readonly text: string;
}

/** What is to be known of a PostgreSQL server. */
export interface ServerState extends ServerAge {
  /** Of the role in its URL. */
  readonly isSuperuser: boolean;
  /** The platform role has CREATEDB and CREATEROLE. */
  readonly mayCreate: boolean;
  /** See `Cluster.isHardened`. */
  readonly isHardened: boolean;
  /** How many sessions roles without special rights can have together. */
  readonly connectionsMax: number;
  readonly mayPrepareTransactions: boolean;
  /** By how much its clock is ahead of this machine's, and how exactly that is known, in milliseconds. */
  readonly clockAheadMs: number;
  readonly clockWithinMs: number;
}

/** A server that is looked at. */
export interface ExaminedServer {
  readonly name: string;
  /** @throws the reason for which it does not answer */
  read(): Promise<ServerState>;
}

/** Needs no rights. @throws the reason for which it does not answer */
export async function readServerState(platform: Pick<Platform, 'cluster' | 'run'>): Promise<ServerState> {
  const { superuser, isHardened, maxConnections: connectionsMax, hasPreparedTransactions: mayPrepareTransactions } = platform.cluster;
  return platform.run(async (session) => {
    const age = await readServerAge(session);
    const before = Date.now();
    const { rows } = await session.query<{ now: string; mayCreate: boolean }>(
      `SELECT (1000 * extract(epoch FROM pg_catalog.clock_timestamp()))::float8 AS now, rolcreatedb AND rolcreaterole AS "mayCreate"
       FROM pg_catalog.pg_roles WHERE rolname = current_user`,
    );
    const clockWithinMs = (Date.now() - before) / 2;
    const [{ now = Number.NaN, mayCreate = false } = {}] = rows;
    const clock = { clockAheadMs: Number(now) - before - clockWithinMs, clockWithinMs };
    return { ...age, ...clock, isSuperuser: superuser !== undefined, mayCreate, isHardened, connectionsMax, mayPrepareTransactions };
  });
}

interface ExaminedBackup {
  readonly time: string;
  readonly verified: string | null;
}

/** What is looked at besides the servers. */
export interface Surroundings {
  /** As `process.versions.node`. */
  readonly node: string;
  readonly now: Date;
  /** How many files a process may have open; undefined: any number, or it is not known. */
  readonly openFiles: number | undefined;
  /** By what is on them. */
  readonly disks: ReadonlyMap<string, DiskUse | undefined>;
  /** Undefined: the server is not the embedded one. */
  readonly backups: readonly ExaminedBackup[] | Error | undefined;
  /** Until when the certificate is valid; undefined: there is none. */
  readonly certificate: Date | Error | undefined;
  /** Of `POSTERN_PUBLIC_HOST`; undefined: it is not set. */
  readonly publicHost: 'found' | Error | undefined;
}

/** @param folder of the embedded server; undefined: there is none */
export async function readSurroundings(config: Config, folder: string | undefined): Promise<Surroundings> {
  const { POSTERN_BACKUP_DIR: backupDir, POSTERN_TLS_CERT: certificate, POSTERN_PUBLIC_HOST: publicHost } = config;
  const folders = Object.entries({ 'the data directory': folder, 'the backups': backupDir });
  const disks = folders.map(async ([what, path]) => (path === undefined ? [] : [[what, await new DiskSpace(path).use()] as const]));
  return {
    node: process.versions.node,
    now: new Date(),
    openFiles: openFilesLimit(),
    disks: new Map((await Promise.all(disks)).flat()),
    backups: folder === undefined ? undefined : await orError(listBackups(backupDir)),
    certificate: certificate === undefined ? undefined : await orError(validUntil(certificate)),
    publicHost: publicHost === undefined ? undefined : await orError(lookup(publicHost).then(() => 'found' as const)),
  };
}

async function validUntil(path: string): Promise<Date> {
  return new Date(new X509Certificate(await readFile(path)).validTo);
}

function orError<Value>(work: Promise<Value>): Promise<Value | Error> {
  return work.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
}

/** Looks at each server, one after the other, and at what is around the service. */
export async function examine(servers: readonly ExaminedServer[], surroundings: Surroundings, config: Config): Promise<Finding[]> {
  const findings: Finding[] = [examineNode(surroundings)];
  const states: ServerState[] = [];
  for (const server of servers) {
    const state = await orError(server.read());
    if (state instanceof Error) {
      findings.push(attention(`the PostgreSQL server of the cluster ${server.name} does not answer: ${textOf(state)}`));
    } else {
      states.push(state);
      findings.push(...examineServer(server.name, state, config));
    }
  }
  const concern = concernAboutReleases(surroundings.now);
  if (concern !== undefined) findings.push(attention(concern));
  const backendsMax = config.POSTERN_BACKENDS_MAX * servers.length || states.reduce((sum, { connectionsMax }) => sum + connectionsMax, 0);
  return [
    ...findings,
    examineOpenFiles(config, backendsMax, surroundings),
    ...examineCertificate(surroundings),
    ...examineDisks(surroundings),
    ...examineBackups(config, surroundings),
    ...examineAddress(config, surroundings),
  ];
}

function attention(text: string): Finding {
  return { needsAttention: true, text };
}

function fine(text: string): Finding {
  return { needsAttention: false, text };
}

function examineNode({ node }: Surroundings): Finding {
  const ended = endOfSupport(node);
  return ended === undefined ? fine(`Node is ${node}`) : attention(ended);
}

/** Nobody notices less, and a login may take as long. */
const CLOCK_MS = 5_000;

function examineServer(name: string, state: ServerState, config: Config): Finding[] {
  const { version, isSuperuser, mayCreate, isHardened, mayPrepareTransactions, clockAheadMs, clockWithinMs } = state;
  const server = `the PostgreSQL server of the cluster ${name}`;
  const release = `${Math.floor(version / 10_000)}.${version % 10_000}`;
  const concerns = concernsAbout(state, name);
  const findings = concerns.length > 0 ? concerns.map(attention) : [fine(`${server} is ${release}: no fixes that it lacks are known`)];
  if (!mayCreate) findings.push(attention(`the role of ${server} has lost CREATEDB or CREATEROLE: no organization can be made there`));
  else if (isHardened) findings.push(fine(`the role of ${server} has the rights that it needs${isSuperuser ? ', as a superuser' : ''}`));
  else {
    const open = 'organizations see statistics and locks of the whole server: start the service once with a superuser in its URL';
    findings.push(attention(`its catalogs are not closed on ${server}, for which it takes a superuser: ${open}`));
  }
  findings.push(examineConnections(server, state, config));
  if (mayPrepareTransactions)
    findings.push(
      attention(`${server} lets organizations prepare transactions, which keep locks for good: set max_prepared_transactions = 0`),
    );
  const seconds = (Math.abs(clockAheadMs) / 1_000).toFixed(1);
  if (Math.abs(clockAheadMs) - clockWithinMs > CLOCK_MS) {
    const way = clockAheadMs > 0 ? 'ahead of' : 'behind';
    findings.push(attention(`the clock of ${server} is ${seconds} s ${way} this machine's: keys and clones end at other times than said`));
  } else findings.push(fine(`the clock of ${server} is that of this machine`));
  return findings;
}

function examineConnections(server: string, { connectionsMax }: ServerState, config: Config): Finding {
  const { backends, own } = sessionsNeeded(config, connectionsMax, config.POSTERN_WORKERS);
  const allows = `${server} allows ${connectionsMax} sessions (max_connections)`;
  if (backends + own <= connectionsMax) return fine(`${allows}: enough for ${backends} backends`);
  const needed = `${backends} backends and ${own} sessions of the service's own need ${backends + own}`;
  return attention(`${allows}, and ${needed}: raise it, or lower POSTERN_BACKENDS_MAX or POSTERN_WORKERS`);
}

function examineOpenFiles(config: Config, backendsMax: number, { openFiles }: Surroundings): Finding {
  let warning: string | undefined;
  connectionLimits(config, backendsMax, openFiles, (observation) => {
    if (observation.name === 'service.warning') warning = observation.message;
  });
  if (warning !== undefined) return attention(warning);
  return fine(`a process may have ${openFiles ?? 'any number of'} files open: enough for the settings`);
}

const CERTIFICATE_DAYS = 14;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

function examineCertificate({ certificate, now }: Surroundings): Finding[] {
  if (certificate === undefined) return [];
  if (certificate instanceof Error) return [attention(`the certificate in POSTERN_TLS_CERT cannot be read: ${textOf(certificate)}`)];
  const until = certificate.toISOString();
  const leftMs = certificate.getTime() - now.getTime();
  if (leftMs <= 0) return [attention(`the certificate in POSTERN_TLS_CERT expired at ${until}`)];
  const text = `the certificate in POSTERN_TLS_CERT is valid until ${until}`;
  return [leftMs > CERTIFICATE_DAYS * DAY_MS ? fine(text) : attention(`${text}: renew it`)];
}

function examineDisks({ disks }: Surroundings): Finding[] {
  return [...disks].map(([what, use]) => {
    if (use === undefined) return attention(`the system does not tell how much of the disk of ${what} is free`);
    const text = `${Math.floor((100 * use.freeBytes) / use.sizeBytes)} % of the disk of ${what} are free`;
    return isLow(use) ? attention(`${text}: make room`) : fine(text);
  });
}

/** If the service verifies none by itself. */
const VERIFIED_DAYS = 30;

function examineBackups(config: Config, { backups, now }: Surroundings): Finding[] {
  if (backups === undefined) return [];
  if (backups instanceof Error) return [attention(`the backups cannot be looked at: ${textOf(backups)}`)];
  const { POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_HOURS: hours, POSTERN_BACKUP_VERIFY_HOURS: verifyHours } = config;
  if (dir === undefined) return [attention('there are no backups of the embedded server: set POSTERN_BACKUP_DIR')];
  const ageOf = (time: string) => now.getTime() - Date.parse(time);
  const newest = latest(backups.map(({ time }) => time));
  const verified = latest(backups.flatMap((one) => one.verified ?? []));
  if (newest === undefined) return [attention(`there is no base backup in ${dir}`)];
  const findings: Finding[] = [];
  const base = `the newest base backup is of ${newest}`;
  // The next one is late.
  findings.push(ageOf(newest) > 2 * hours * HOUR_MS ? attention(`${base}: the log says why there is none since`) : fine(base));
  const longest = verifyHours === 0 ? VERIFIED_DAYS * DAY_MS : 2 * verifyHours * HOUR_MS;
  if (verified === undefined) findings.push(attention('no backup has been restored for a trial: postern admin backup verify'));
  else if (ageOf(verified) > longest) findings.push(attention(`no backup has been restored for a trial since ${verified}`));
  else findings.push(fine(`a backup was restored for a trial at ${verified}`));
  return findings;
}

function latest(times: readonly string[]): string | undefined {
  return times.toSorted().at(-1);
}

function examineAddress(config: Config, { publicHost }: Surroundings): Finding[] {
  const { POSTERN_HOST: host, POSTERN_PUBLIC_HOST: name, POSTERN_TLS_CERT: certificate, POSTERN_TLS: tls } = config;
  const findings: Finding[] = [];
  if (publicHost instanceof Error) {
    findings.push(
      attention(`POSTERN_PUBLIC_HOST is ${name}, which is not found: ${textOf(publicHost)}; replies tell clients to connect there`),
    );
  } else if (publicHost !== undefined) findings.push(fine(`replies tell clients to connect to ${name}`));
  if (isLoopback(host)) return findings;
  if (publicHost === undefined && (host === '0.0.0.0' || host === '::'))
    findings.push(attention('replies tell clients to connect to whatever host they have asked for: set POSTERN_PUBLIC_HOST'));
  if (certificate !== undefined && tls === 'require') findings.push(fine(`both doors speak TLS on ${host}`));
  else if (certificate !== undefined) {
    findings.push(attention(`the wire door on ${host} takes connections without TLS, which others can read: set POSTERN_TLS=require`));
  } else {
    const warning = clearTextWarning(config);
    const proxied = `the doors on ${host} have no TLS: the proxy in front of them must have it, and nobody else reach them`;
    findings.push(warning === undefined ? fine(proxied) : attention(warning));
  }
  return findings;
}

/** A line for each finding. */
export function findingsTable(findings: readonly Finding[]): string {
  return findings.map(({ needsAttention, text }) => `${needsAttention ? 'ATTENTION' : 'ok'.padEnd(9)}  ${text}`).join('\n');
}
