import { randomBytes, randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { Catalog, type CatalogOptions } from '../../../src/catalog/catalog.ts';
import type { ControlConnection } from '../../../src/catalog/control-pool.ts';
import type { NewApiKey } from '../../../src/catalog/key-rows.ts';
import type { Organization } from '../../../src/catalog/organization.ts';
import type { SignUp } from '../../../src/catalog/sign-ups.ts';
import type { Observation, Origin } from '../../../src/observation.ts';

export const ORIGIN: Origin = { surface: 'http', sourceIp: '203.0.113.7', userAgent: 'curl/8.5.0', requestId: 'req-1' };

/** A control database as the cluster's set-up leaves it: empty, owned by a role that is no superuser. */
export class TestControlDatabase {
  readonly connection: ControlConnection;
  readonly #cluster: pg.Client;
  /** The superuser in the control database: whoever tampers with it. */
  readonly #superuser: pg.Client;

  private constructor(connection: ControlConnection, cluster: pg.Client, superuser: pg.Client) {
    this.connection = connection;
    this.#cluster = cluster;
    this.#superuser = superuser;
  }

  static async create(): Promise<TestControlDatabase> {
    const clusterUrl = inject('clusterUrl');
    const name = `control_${randomUUID().replaceAll('-', '')}`;
    const cluster = new pg.Client({ connectionString: clusterUrl });
    await cluster.connect();
    await cluster.query(`create role ${name} login password 'control'`);
    await cluster.query(`create database ${name} owner ${name}`);
    const { host, port, user, password } = cluster;
    const superuser = new pg.Client({ host, port, user: user ?? '', password: password ?? '', database: name });
    await superuser.connect();
    return new TestControlDatabase({ host, port, user: name, password: 'control', database: name }, cluster, superuser);
  }

  async drop(): Promise<void> {
    await this.#superuser.end();
    await this.#cluster.query(`drop database ${this.connection.database} with (force)`);
    await this.#cluster.query(`drop role ${this.connection.user}`);
    await this.#cluster.end();
  }

  async query<Row extends pg.QueryResultRow>(sql: string, values: readonly unknown[] = []): Promise<Row[]> {
    return (await this.#superuser.query<Row>(sql, [...values])).rows;
  }

  /** Lets the catalog's role log in, or not; sessions that are open stay. */
  async allowLogins(allowed: boolean): Promise<void> {
    await this.#cluster.query(`alter role ${this.connection.user} ${allowed ? 'login' : 'nologin'}`);
  }

  /** Ends sessions of the catalog by what they call themselves; resolves when they are gone. */
  async terminate(applicationName: string): Promise<void> {
    await this.#cluster.query(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1 and application_name = $2`, [
      this.connection.database,
      applicationName,
    ]);
  }
}

/** A catalog on the database, what it has observed, and a clock that the test can set. */
export interface TestCatalog {
  readonly catalog: Catalog;
  readonly observations: Observation[];
  /** Resolves with the next observation of that name, or the first one if there was one already. */
  observed<Name extends Observation['name']>(name: Name): Promise<Extract<Observation, { name: Name }>>;
  readonly clock: { offsetMs: number };
}

export async function openCatalog(database: TestControlDatabase, options: Partial<CatalogOptions> = {}): Promise<TestCatalog> {
  const observations: Observation[] = [];
  const waiting = new Set<(observation: Observation) => void>();
  const clock = { offsetMs: 0 };
  const catalog = await Catalog.open({
    connection: database.connection,
    auditDays: 90,
    now: () => new Date(Date.now() + clock.offsetMs),
    observe: (observation) => {
      observations.push(observation);
      for (const tell of waiting) tell(observation);
    },
    ...options,
  });
  const observed = <Name extends Observation['name']>(name: Name) =>
    new Promise<Extract<Observation, { name: Name }>>((resolve) => {
      const tell = (observation: Observation) => {
        if (isNamed(observation, name)) resolve(observation);
      };
      waiting.add(tell);
      observations.forEach(tell);
    });
  return { catalog, observations, observed, clock };
}

function isNamed<Name extends Observation['name']>(
  observation: Observation,
  name: Name,
): observation is Extract<Observation, { name: Name }> {
  return observation.name === name;
}

export function newKey(): NewApiKey {
  return {
    id: `key_${randomBytes(6).toString('hex')}`,
    prefix: `pst_${randomBytes(3).toString('hex')}`,
    digest: randomBytes(32),
    verifier: { iterations: 4096, salt: randomBytes(16), storedKey: randomBytes(32), serverKey: randomBytes(32) },
  };
}

export function newSignUp(changes: Partial<SignUp> = {}): SignUp {
  const id = `org_${randomBytes(6).toString('hex')}`;
  return {
    id,
    name: 'Acme',
    email: `${id}@acme.test`,
    placement: { kind: 'database', cluster: 'default', database: id, schema: 'public', role: id },
    key: newKey(),
    signupsPerHour: 1_000_000,
    ...changes,
  };
}

/** An organization that can log in, with its key. */
export async function newOrganization(catalog: Catalog): Promise<{ organization: Organization; key: NewApiKey }> {
  const request = newSignUp();
  await catalog.signUps.record(request, ORIGIN);
  return { organization: await catalog.signUps.activate(request.id, ORIGIN), key: request.key };
}
