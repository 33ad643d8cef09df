import { afterAll, beforeAll, expect } from 'vitest';
import { type OperatorSession, openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import type { Address } from '../../src/placement/citus.ts';
import { type Service, startService } from '../../src/service.ts';
import { type Doors, doorsAt, type TestOrganization } from '../support/doors.ts';
import { asSuperuser, CONTROL_DATABASE, COORDINATOR_URL, clear, type Relay, relayTo, workerAddresses } from './nodes.ts';

const config = () =>
  readConfig({
    DATABASE_URL: COORDINATOR_URL,
    POSTERN_SECRET: 'the secret of the tests with Citus, so that passwords agree',
    POSTERN_CONTROL_DATABASE: CONTROL_DATABASE,
    POSTERN_PLACEMENT: 'schema',
    POSTERN_HTTP_PORT: '0',
    POSTERN_PG_PORT: '0',
    POSTERN_OPS_PORT: '0',
    POSTERN_SIGNUPS_PER_HOUR: '1000',
  });

export let doors: Doors;
export let operator: OperatorSession;
/** The way to the second worker. */
export let relay: Relay;
export let workers: readonly [Address, Address];

/** Starts a service over a coordinator and two workers. The tests of a file share it. */
export function useCitus(): void {
  let service: Service;
  beforeAll(async () => {
    const [first, second] = workerAddresses();
    await clear();
    await clear(first);
    await clear(second);
    relay = await relayTo(second);
    workers = [first, relay];
    service = await startService(config(), () => {});
    doors = doorsAt(service.httpPort, service.wirePort);
    operator = await openOperator(config());
    // One worker first: the other is added to a service that runs.
    await operator.citus.setUp([first]);
    await operator.citus.setUp(workers);
  });
  afterAll(async () => {
    await operator.close();
    await service.close();
    await relay.close();
  });
}

export async function rows(organization: TestOrganization, sql: string, params?: readonly unknown[]): Promise<unknown> {
  const { status, body } = await doors.query(organization, sql, params);
  expect(body, sql).toMatchObject(status === 200 ? {} : { status: 200 });
  return body.rows;
}

/** The port of the worker that has an organization's table. */
export async function workerOf({ id }: TestOrganization, table: string): Promise<number> {
  const [row] = await asSuperuser<{ port: number }>(
    `SELECT nodeport AS port FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
     WHERE logicalrelid = '${id}.${table}'::regclass`,
  );
  return row?.port ?? 0;
}
