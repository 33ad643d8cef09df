import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import pg from 'pg';
import { parseUrl } from '../../src/placement/admin-connection.ts';
import type { Address } from '../../src/placement/citus.ts';

export const COORDINATOR_URL = process.env.POSTERN_TEST_CITUS_URL ?? '';
export const CONTROL_DATABASE = 'citus_test_control';

/** The first two of POSTERN_TEST_CITUS_WORKERS. */
export function workerAddresses(): readonly [Address, Address] {
  const [first, second] = (process.env.POSTERN_TEST_CITUS_WORKERS ?? '').split(',').map((text) => {
    const [host = '', port] = text.split(':');
    return { host, port: Number(port) };
  });
  if (first === undefined || second === undefined) throw new Error('POSTERN_TEST_CITUS_WORKERS needs two addresses');
  return [first, second];
}

export async function asSuperuser<Row extends pg.QueryResultRow>(
  sql: string,
  { database = 'postern_shared', node = {} } = {},
): Promise<Row[]> {
  const client = new pg.Client({ ...parseUrl(COORDINATOR_URL), ssl: false, ...node, database });
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Removes what an earlier run has left on a node. */
export async function clear(node: Partial<Address> = {}): Promise<void> {
  const at = { database: 'postgres', node };
  await asSuperuser("UPDATE pg_database SET datistemplate = false WHERE datname = 'postern_template'", at);
  for (const name of ['postern_shared', 'postern_template', CONTROL_DATABASE])
    await asSuperuser(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`, at);
  const roles = await asSuperuser<{ name: string }>("SELECT rolname AS name FROM pg_roles WHERE rolname ~ '^org_'", at);
  for (const { name } of roles) await asSuperuser(`DROP ROLE ${name}`, at);
}

/** A way to a server that can be closed and opened again. */
export interface Relay extends Address {
  close(): Promise<void>;
  open(): Promise<void>;
}

export async function relayTo({ host, port }: Address): Promise<Relay> {
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  const open = async (at: number) => {
    server = createServer((client) => {
      const upstream = connect({ host, port });
      for (const [from, to] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        sockets.add(from);
        from.pipe(to);
        from
          .on('error', () => {})
          .on('close', () => {
            sockets.delete(from);
            to.destroy();
          });
      }
    }).listen(at, '127.0.0.1');
    await once(server, 'listening');
    return server.address() as AddressInfo;
  };
  const address = await open(0);
  return {
    host: '127.0.0.1',
    port: address.port,
    async close() {
      for (const socket of sockets) socket.destroy();
      server?.close();
      if (server?.listening === true) await once(server, 'close');
    },
    async open() {
      await open(address.port);
    },
  };
}
