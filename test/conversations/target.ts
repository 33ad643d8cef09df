import pg from 'pg';
import type { TestCluster } from '../support/cluster.setup.ts';

/** A server that conversations are held with, and what to expect of it. */
export interface Target {
  /** `plain` is PostgreSQL itself, the oracle; `postern` is the wire door in front of it. */
  readonly kind: 'plain' | 'postern';
  /** A name, an address, or the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly password: string;
  /** Major version of the PostgreSQL that does the work. */
  readonly version: number;
  /** `schema`: the organization has a schema in a database that it shares. */
  readonly placement: 'database' | 'schema';
  /** How many sessions can be in a transaction, or pinned, at the same time. */
  readonly backends: number;
}

export interface PlainTarget extends Target {
  drop(): Promise<void>;
}

/** A new role that owns a new database of the same name (as an organization has it). */
export async function createPlainTarget(cluster: TestCluster, name: string): Promise<PlainTarget> {
  const password = `password of ${name}`;
  const version = await asSuperuser(cluster, async (client) => {
    await client.query(`CREATE ROLE ${name} LOGIN PASSWORD '${password}'`);
    await client.query(`CREATE DATABASE ${name} OWNER ${name}`);
    const { rows } = await client.query<{ version: number }>("SELECT current_setting('server_version_num')::int / 10000 AS version");
    return rows[0]?.version ?? 0;
  });
  const drop = () =>
    asSuperuser(cluster, async (client) => {
      await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
      await client.query(`DROP ROLE IF EXISTS ${name}`);
    });
  const { host, port } = cluster;
  return { kind: 'plain', host, port, user: name, database: name, password, version, placement: 'database', backends: 20, drop };
}

async function asSuperuser<T>(cluster: TestCluster, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ ...cluster });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
