import pg from 'pg';
import { rolePassword } from '../../auth/role-password.ts';
import { runCommand } from '../../backend/run-command.ts';
import type { Placement } from '../../catalog/organizations/organization.ts';
import type { ServedCluster } from '../../router/clusters/served-cluster.ts';
import { MOVER_NAME } from '../../router/moves/interrupted-moves.ts';
import type { TenantSession } from './side.ts';

/** The sessions can be found. With the same settings on both sides a value has the same text, and a setting of the role changes nothing. */
const SETTINGS: Readonly<Record<string, string>> = {
  application_name: MOVER_NAME,
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
  statement_timeout: '0',
};

const SET = Object.entries(SETTINGS)
  .map(([name, value]) => `SET ${name} = ${pg.escapeLiteral(value)}`)
  .join('; ');

export async function openTenantSession({ platform, provisioner }: ServedCluster, placement: Placement): Promise<TenantSession> {
  const { cluster } = platform;
  // A login that the organization has broken is repaired here.
  const backend = await provisioner.open(placement);
  const { host, port, ssl, user, password, database } = cluster.login({
    user: placement.role,
    password: rolePassword(cluster.secret, placement.role),
    database: placement.database,
  });
  const options = '-c role=none -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off';
  const client = new pg.Client({ host, port, ssl: ssl ?? false, user, password, database, options, application_name: MOVER_NAME });
  // A connection lost between two statements fails the next one.
  client.on('error', () => {});
  const end = async () => {
    backend.end();
    await client.end().catch(() => {});
  };
  try {
    await runCommand(backend, SET);
    await client.connect();
    await client.query(SET);
    const { rows } = await client.query<{ id: number }>('SELECT pg_catalog.pg_backend_pid() AS id');
    return { client, backend, processIds: [backend.processId, ...rows.map(({ id }) => id)], end };
  } catch (error) {
    await end();
    throw error;
  }
}
