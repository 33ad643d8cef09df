import { randomInt } from 'node:crypto';
import { chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { serverAccount } from '../../../src/embedded/data-directory.ts';
import { withSession } from '../../../src/placement/admin-connection.ts';
import { CERTIFICATE, CERTIFICATE_KEY, OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY } from '../../support/certificate.ts';
import { startPostgres15 } from '../../support/postgres15.ts';
import { makeScratch } from '../../support/scratch.ts';
import { startFork, startImpostor, startPassage, startThief } from '../../support/tls.ts';

const HOST_BASED_AUTHENTICATION = 'local all all scram-sha-256\nhostssl all all 127.0.0.0/8 scram-sha-256\n';

/** Besides the server there are two with another certificate for the same name: one who passes on what clients say, and a thief. */
export type Destination = 'server' | 'impostor' | 'thief';

/** A PostgreSQL 15 that is reached over the network by TLS alone, by way of somebody who may bring clients to others instead. */
export interface TlsServer {
  readonly server: Awaited<ReturnType<typeof startPostgres15>>;
  /** Where it listens itself: a name that is not in its certificate. */
  readonly address: string;
  /** The file with its certificate, which has signed itself. */
  readonly certificate: string;
  /** By the name in its certificate. @param parameters the query of the URL */
  url(parameters: string): string;
  /** To whom a client is brought, by the first bytes of its handshake. */
  route(hello: Buffer): Destination;
  /** What the thief has been told. */
  readonly stolen: readonly string[];
  /** Has new sessions be shown another certificate. @returns the file with it */
  present(certificate: string, key: string): Promise<string>;
}

export async function startTlsServer(): Promise<TlsServer & { stop(): Promise<void> }> {
  const [account, scratch] = [await serverAccount(), await makeScratch()];
  const file = async (name: string, text: string) => {
    const path = join(scratch.path, name);
    await writeFile(path, text, { mode: 0o600 });
    if (account !== undefined) await chown(path, account.uid, account.gid);
    return path;
  };
  const certificate = await file('own.crt', CERTIFICATE);
  // No other server of the machine has it, so the port need not be a free one.
  const address = `127.${randomInt(1, 255)}.${randomInt(1, 255)}.${randomInt(1, 255)}`;
  const server = await startPostgres15({
    wal_level: 'logical',
    listen_addresses: address,
    ssl: 'on',
    ssl_cert_file: await file('server.crt', CERTIFICATE),
    ssl_key_file: await file('server.key', CERTIFICATE_KEY),
    hba_file: await file('pg_hba.conf', HOST_BASED_AUTHENTICATION),
  });
  const passage = await startPassage(address, server.port);
  const impostor = await startImpostor(passage.port, OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY);
  const thief = await startThief(OTHER_CERTIFICATE, OTHER_CERTIFICATE_KEY);
  const ports: Readonly<Record<Destination, number>> = { server: passage.port, impostor: impostor.port, thief: thief.port };
  const fork = await startFork((hello) => ports[found.route(hello)]);
  const found = {
    server,
    address,
    certificate,
    route: (_hello: Buffer): Destination => 'server',
    stolen: thief.stolen,
    url: (parameters: string) => `postgres://${server.user}:${server.password}@localhost:${fork.port}/postgres?${parameters}`,
    async present(other: string, key: string) {
      await file('server.key', key);
      const path = await file('server.crt', other);
      await withSession(server, (session) => session.query('SELECT pg_reload_conf()'));
      return path;
    },
    async stop() {
      for (const relay of [fork, thief, impostor, passage]) relay.close();
      await server.stop();
      await scratch.remove();
    },
  };
  return found;
}
