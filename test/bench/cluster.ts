import { randomBytes } from 'node:crypto';
import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { deriveVerifier, formatVerifier, SCRAM_ITERATIONS, SCRAM_SALT_BYTES } from '../../src/auth/scram.ts';
import { startEmbedded } from '../../src/embedded/embedded.ts';
import { serverUrl } from '../support/server-url.ts';
import { freePort } from './child.ts';
import type { Closing } from './closing.ts';

/** The role that everything but Postern logs in as. */
export const BENCH_ROLE = 'bench';

/** The one Postgres behind all peers. They reach it through its Unix socket; whoever measures it directly, by TCP like a peer. */
export interface BenchCluster {
  /** Folder of the Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly password: string;
  /** {@link BENCH_ROLE}'s, as the server keeps it: with it a pooler can let clients in, and log in itself with what they prove. */
  readonly verifier: string;
  /** For DATABASE_URL. */
  readonly adminUrl: string;
  readonly version: string;
  /** Lets the bench's role do what this role may, also in its database. */
  admit(role: string): Promise<void>;
}

const SETTINGS = {
  listen_addresses: '127.0.0.1',
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  max_connections: '400',
  log_min_messages: 'warning',
  // What runs beside the clients now and then would hit one peer and not the other.
  autovacuum: 'off',
};

export async function startCluster(folder: string, closing: Closing): Promise<BenchCluster> {
  const port = await freePort();
  const embedded = await startEmbedded({ dataDir: join(folder, 'data'), settings: { ...SETTINGS, port: String(port) } });
  closing.defer(() => embedded.stop());
  const { host, superuser } = embedded;
  const admin = new pg.Client({ host, port, ...superuser, database: 'postgres' });
  await admin.connect();
  closing.defer(() => admin.end());

  const password = randomBytes(24).toString('base64url');
  const verifier = formatVerifier(await deriveVerifier(password, randomBytes(SCRAM_SALT_BYTES), SCRAM_ITERATIONS));
  await admin.query(`CREATE ROLE ${BENCH_ROLE} LOGIN PASSWORD ${pg.escapeLiteral(verifier)}`);
  await openTcp(admin);
  const { rows } = await admin.query<{ version: string }>("SELECT current_setting('server_version') AS version");
  return {
    host,
    port,
    password,
    verifier,
    adminUrl: serverUrl({ host, port, ...superuser }),
    version: rows[0]?.version ?? '',
    async admit(role) {
      await admin.query(`GRANT ${pg.escapeIdentifier(role)} TO ${BENCH_ROLE}`);
    },
  };
}

/** An embedded server lets nobody in by TCP; here, whoever has the password. */
async function openTcp(admin: pg.Client): Promise<void> {
  const { rows } = await admin.query<{ hba_file: string }>('SHOW hba_file');
  await appendFile(rows[0]?.hba_file ?? '', 'host all all 127.0.0.1/32 scram-sha-256\n');
  await admin.query('SELECT pg_reload_conf()');
}
