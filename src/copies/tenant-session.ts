import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { rolePassword } from '../auth/derived-secrets.ts';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { Placement } from '../catalog/organization.ts';
import type { ServedCluster, ServedPlacement } from '../router/served-cluster.ts';
import { type CopyOptions, FOR_MOVE } from './copy-options.ts';

/** Two sessions of an organization's own role at one of its placements. */
export interface TenantSession {
  /** For statements; it may be in a transaction. */
  readonly client: pg.Client;
  /** For COPY. */
  readonly backend: BackendConnection;
  readonly processIds: readonly number[];
  /** Resolves when the server does not list them any more, or after some seconds. */
  end(): Promise<void>;
}

/** One of the two placements between which an organization's data is copied. */
export interface OpenPlacement extends ServedPlacement {
  readonly session: TenantSession;
}

/** With the same settings at both placements a value has the same text, and a setting of the role changes nothing. */
const SETTINGS: Readonly<Record<string, string>> = {
  search_path: '',
  client_encoding: 'UTF8',
  client_min_messages: 'error',
  DateStyle: 'ISO',
  IntervalStyle: 'postgres',
  TimeZone: 'UTC',
  bytea_output: 'hex',
  extra_float_digits: '1',
  lc_monetary: 'C',
  xmloption: 'content',
  standard_conforming_strings: 'on',
  row_security: 'off',
  check_function_bodies: 'off',
  lock_timeout: '5s',
};

const GONE_WITHIN_MS = 5_000;
const POLL_MS = 20;

export async function openTenantSession(
  { platform, provisioner }: ServedCluster,
  placement: Placement,
  { name, timeoutMs }: Pick<CopyOptions, 'name' | 'timeoutMs'> = FOR_MOVE,
): Promise<TenantSession> {
  const { cluster } = platform;
  // A login that the organization has broken is repaired here.
  const backend = await provisioner.open(placement);
  const { host, port, ssl, user, password, database } = cluster.login({
    user: placement.role,
    password: rolePassword(cluster.secret, placement.role),
    database: placement.database,
  });
  const settings = setting({
    ...SETTINGS,
    application_name: name,
    statement_timeout: String(timeoutMs),
    idle_in_transaction_session_timeout: String(timeoutMs),
  });
  const options = '-c role=none -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off';
  const client = new pg.Client({ host, port, ssl: ssl ?? false, user, password, database, options, application_name: name });
  // A connection lost between two statements fails the next one.
  client.on('error', () => {});
  const processIds = [backend.processId];
  const end = async () => {
    backend.end();
    await client.end().catch(() => {});
    await untilGone(platform, processIds).catch(() => {});
  };
  try {
    await runCommand(backend, settings);
    await client.connect();
    await client.query(settings);
    const { rows } = await client.query<{ id: number }>('SELECT pg_catalog.pg_backend_pid() AS id');
    processIds.push(...rows.map(({ id }) => id));
    return { client, backend, processIds, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** A session that its client has ended is listed for some time. A move would take it for one of somebody else. */
async function untilGone(platform: ServedCluster['platform'], processIds: readonly number[]): Promise<void> {
  const deadline = performance.now() + GONE_WITHIN_MS;
  const query = 'SELECT FROM pg_catalog.pg_stat_activity WHERE pid = ANY ($1)';
  while ((await platform.run((session) => session.query(query, [processIds]))).rows.length > 0) {
    if (performance.now() > deadline) return;
    await delay(POLL_MS);
  }
}

function setting(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => `SET ${name} = ${pg.escapeLiteral(value)}`)
    .join('; ');
}
