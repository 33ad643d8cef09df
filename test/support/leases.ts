import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { BackendConnection } from '../../src/backend/connection.ts';
import { Pool } from '../../src/backend/pool.ts';
import { NO_LIMITS } from '../../src/catalog/limits.ts';
import { Lease, type Tenant } from '../../src/router/lease.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { RESULT_BOUNDS } from '../../src/sql/result-budget.ts';
import { acquire } from './acquire.ts';

/** A database and a role of its own that owns `public`, as an organization has them, and leases on it without a router. */
export interface TestDatabase {
  readonly name: string;
  readonly pool: Pool;
  readonly results: MemoryBudget;
  lease(): Promise<Lease>;
  /** As the platform, in the organization's database. */
  readonly admin: pg.Client;
  /** As the organization, in a session of its own that stays open. */
  asOwner(sql: string): Promise<void>;
  /** Waits until a query that the platform asks again and again answers with true. */
  until(sql: string): Promise<void>;
  close(): Promise<void>;
}

const UNTIL_TIMEOUT_MS = 120_000;

export async function createTestDatabase(backendsMax = 8): Promise<TestDatabase> {
  const url = new URL(inject('clusterUrl'));
  const name = `org_${randomBytes(6).toString('hex')}`;
  const password = randomBytes(12).toString('hex');
  await withClient(url.href, async (client) => {
    await client.query(`CREATE ROLE ${name} LOGIN PASSWORD '${password}'`);
    await client.query(`CREATE DATABASE ${name}`);
    await client.query(`GRANT ALL ON DATABASE ${name} TO ${name}`);
  });
  const admin = new pg.Client({ connectionString: withDatabase(url, name) });
  await admin.connect();
  await admin.query(`ALTER SCHEMA public OWNER TO ${name}`);
  const owner = new pg.Client({ connectionString: withDatabase(url, name) });
  await owner.connect();
  await owner.query(`SET SESSION AUTHORIZATION ${name}`);

  const pool = new Pool({ max: backendsMax, maxPerTenant: backendsMax, queueTimeoutMs: 60_000, idleMs: 60_000 }, () => {});
  const results = new MemoryBudget(RESULT_BOUNDS);
  const tenant = tenantOf(name);
  const login = { host: hostOf(url), port: Number(url.port || 5432), user: name, password, database: name, connectTimeoutMs: 60_000 };
  return {
    name,
    pool,
    results,
    admin,
    async lease() {
      const backend = await acquire(pool, name, () => BackendConnection.open(login));
      return new Lease(backend, tenant, 'http', pool, results, () => {});
    },
    async asOwner(sql) {
      await owner.query(sql);
    },
    async until(sql) {
      const deadline = performance.now() + UNTIL_TIMEOUT_MS;
      while ((await admin.query({ text: sql, rowMode: 'array' })).rows[0]?.[0] !== true) {
        if (performance.now() > deadline) throw new Error(`never became true: ${sql}`);
      }
    },
    async close() {
      pool.close();
      await owner.end();
      await admin.end();
      await withClient(url.href, async (client) => {
        await client.query(`DROP DATABASE ${name} WITH (FORCE)`);
        await client.query(`DROP ROLE ${name}`);
      });
    },
  };
}

async function withClient(url: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

function withDatabase(url: URL, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}

/** A URL names the folder of a Unix socket in its query, or percent-encoded as its host. */
function hostOf(url: URL): string {
  return url.searchParams.get('host') ?? decodeURIComponent(url.hostname);
}

function tenantOf(id: string): Tenant {
  const createdAt = new Date(0);
  return {
    organization: {
      id,
      name: 'Acme',
      email: 'a@acme.test',
      status: 'active',
      createdAt,
      placement: { kind: 'database', cluster: 'default', database: id, schema: 'public', role: id },
      limits: NO_LIMITS,
      diskState: 'within',
    },
    key: {
      id: 'key_000000000000',
      organizationId: id,
      prefix: 'pst_000000',
      name: 'first key',
      scope: 'admin',
      createdAt,
      createdBy: null,
      expiresAt: null,
      networks: null,
      lastUsedAt: null,
      replacedBy: null,
    },
    pool: id,
    limitsId: id,
    channels: 'channels',
    revoked: new AbortController().signal,
  };
}
