import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { makeScratch } from './scratch.ts';

/** Stands between Postern and its PostgreSQL, and can keep what that says to itself. */
export interface PostgresProxy {
  /** As a DATABASE_URL. */
  readonly url: string;
  /**
   * Lets nothing more through to the sessions of a role, from the bytes on that Postgres confirms a COMMIT with.
   * Resolves when that has happened: the transaction is committed, and Postern does not know.
   */
  holdBackCommit(role: string): Promise<void>;
  close(): Promise<void>;
}

/** CommandComplete with the tag COMMIT. */
const COMMITTED = Buffer.from('C\0\0\0\x0bCOMMIT\0', 'latin1');

/** @param clusterUrl of a cluster that listens on a Unix socket */
export async function makePostgresProxy(clusterUrl: string): Promise<PostgresProxy> {
  const scratch = await makeScratch();
  const url = new URL(clusterUrl);
  const upstream = `${decodeURIComponent(url.hostname)}/.s.PGSQL.${url.port}`;
  const sockets = new Set<Socket>();
  const held = new Map<string, () => void>();
  const server: Server = createServer((client) => {
    const postgres = connect(upstream);
    let role: string | undefined;
    let isHeld = false;
    for (const socket of [client, postgres]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        postgres.destroy();
      });
    }
    client.on('data', (chunk) => {
      role ??= /\0user\0([^\0]+)\0/.exec(chunk.toString('latin1'))?.[1];
      postgres.write(chunk);
    });
    postgres.on('data', (chunk) => {
      const onHeld = held.get(role ?? '');
      if (onHeld !== undefined && chunk.includes(COMMITTED)) {
        isHeld = true;
        onHeld();
      }
      if (!isHeld) client.write(chunk);
    });
  });
  server.listen(join(scratch.path, `.s.PGSQL.${url.port}`));
  await once(server, 'listening');
  return {
    url: `postgres://${url.username}:${url.password}@${encodeURIComponent(scratch.path)}:${url.port}${url.pathname}`,
    holdBackCommit: (role) => new Promise((resolve) => held.set(role, resolve)),
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await scratch.remove();
    },
  };
}
