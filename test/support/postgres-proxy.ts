import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { makeScratch } from './scratch.ts';

/** Stands between Postern and its PostgreSQL, listens, and can keep to itself what they say to each other. */
export interface PostgresProxy {
  /** As a DATABASE_URL. */
  readonly url: string;
  /**
   * Lets nothing more through to the sessions of a role, from the bytes on that Postgres confirms a COMMIT with.
   * Resolves when that has happened: the transaction is committed, and Postern does not know.
   */
  holdBackCommit(role: string): Promise<void>;
  /** Lets nothing more through to any session of a role. @returns what lets it through again */
  holdAnswers(role: string): () => void;
  /** Has what Postgres says in the sessions of a role pass through somebody's hands. */
  alterAnswers(role: string, alter: (bytes: Buffer) => Buffer): void;
  /** What has been said to Postgres in the sessions of a role since it was last asked, byte by character. */
  takeSaid(role: string): string;
  /** Lets no cancel request through to Postgres. */
  holdCancels(): HeldCancels;
  close(): Promise<void>;
}

export interface HeldCancels {
  readonly count: number;
  /** Lets those through that are held, whether or not somebody still waits for them; resolves when Postgres has taken them. */
  letThrough(): Promise<void>;
}

/** The code of a CancelRequest. */
const CANCEL_REQUEST = Buffer.from('04d2162e', 'hex');
/** CommandComplete with the tag COMMIT. */
const COMMITTED = Buffer.from('C\0\0\0\x0bCOMMIT\0', 'latin1');

/** What a role's sessions say and hear. */
interface Traffic {
  said: string;
  /** Answers that are held, where they are. */
  held: (() => void)[] | undefined;
  onCommit: (() => void) | undefined;
  alter: (bytes: Buffer) => Buffer;
}

/** @param clusterUrl of a cluster that listens on a Unix socket */
export async function makePostgresProxy(clusterUrl: string): Promise<PostgresProxy> {
  const scratch = await makeScratch();
  const url = new URL(clusterUrl);
  const upstream = `${decodeURIComponent(url.hostname)}/.s.PGSQL.${url.port}`;
  const sockets = new Set<Socket>();
  const traffics = new Map<string, Traffic>();
  let cancels: CancelQueue | undefined;
  const trafficOf = (role: string): Traffic => {
    const traffic = traffics.get(role) ?? { said: '', held: undefined, onCommit: undefined, alter: (bytes) => bytes };
    traffics.set(role, traffic);
    return traffic;
  };
  const server: Server = createServer((client) => {
    const postgres = connect(upstream);
    let traffic: Traffic | undefined;
    let isCut = false;
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
      if (cancels !== undefined && chunk.subarray(4, 8).equals(CANCEL_REQUEST)) {
        cancels.hold(client, chunk);
        return;
      }
      const role = /\0user\0([^\0]+)\0/.exec(chunk.toString('latin1'))?.[1];
      if (traffic !== undefined) traffic.said += chunk.toString('latin1');
      else if (role !== undefined) traffic = trafficOf(role);
      postgres.write(chunk);
    });
    postgres.on('data', (bytes) => {
      const chunk = traffic === undefined ? bytes : traffic.alter(bytes);
      if (traffic?.onCommit !== undefined && chunk.includes(COMMITTED)) {
        isCut = true;
        traffic.onCommit();
      }
      if (isCut) return;
      if (traffic?.held === undefined) client.write(chunk);
      else traffic.held.push(() => client.write(chunk));
    });
  });
  server.listen(join(scratch.path, `.s.PGSQL.${url.port}`));
  await once(server, 'listening');
  return {
    url: `postgres://${url.username}:${url.password}@${encodeURIComponent(scratch.path)}:${url.port}${url.pathname}`,
    holdBackCommit: (role) =>
      new Promise((resolve) => {
        trafficOf(role).onCommit = resolve;
      }),
    holdAnswers(role) {
      const traffic = trafficOf(role);
      const held: (() => void)[] = [];
      traffic.held = held;
      return () => {
        traffic.held = undefined;
        for (const answer of held) answer();
      };
    },
    alterAnswers(role, alter) {
      trafficOf(role).alter = alter;
    },
    takeSaid(role) {
      const traffic = trafficOf(role);
      const { said } = traffic;
      traffic.said = '';
      return said;
    },
    holdCancels() {
      cancels = new CancelQueue(upstream);
      return cancels;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await scratch.remove();
    },
  };
}

class CancelQueue implements HeldCancels {
  readonly #upstream: string;
  readonly #requests: Buffer[] = [];

  constructor(upstream: string) {
    this.#upstream = upstream;
  }

  get count(): number {
    return this.#requests.length;
  }

  hold(client: Socket, request: Buffer): void {
    client.allowHalfOpen = true;
    this.#requests.push(request);
  }

  async letThrough(): Promise<void> {
    for (const request of this.#requests) await once(connect(this.#upstream).end(request).resume(), 'close');
  }
}
