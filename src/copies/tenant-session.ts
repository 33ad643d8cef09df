import pg from 'pg';
import { rolePassword } from '../auth/role-password.ts';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/run-command.ts';
import type { Placement } from '../catalog/organizations/organization.ts';
import type { ServedCluster } from '../router/clusters/served-cluster.ts';
import { type CopyOptions, FOR_MOVE } from './copy-options.ts';

/** Two sessions of an organization's own role at one of its placements. */
export interface TenantSession {
  /** For statements; it may be in a transaction. */
  readonly client: pg.Client;
  /** For COPY. */
  readonly backend: BackendConnection;
  readonly processIds: readonly number[];
  end(): Promise<void>;
}

/** A placement on its server. */
export interface ServedPlacement {
  readonly server: ServedCluster;
  readonly placement: Placement;
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
  const end = async () => {
    backend.end();
    await client.end().catch(() => {});
  };
  try {
    await runCommand(backend, settings);
    await client.connect();
    await client.query(settings);
    const { rows } = await client.query<{ id: number }>('SELECT pg_catalog.pg_backend_pid() AS id');
    return { client, backend, processIds: [backend.processId, ...rows.map(({ id }) => id)], end };
  } catch (error) {
    await end();
    throw error;
  }
}

function setting(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => `SET ${name} = ${pg.escapeLiteral(value)}`)
    .join('; ');
}
