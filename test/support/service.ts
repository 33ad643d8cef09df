import { inject } from 'vitest';
import { readConfig } from '../../src/config.ts';
import type { Observation } from '../../src/observation.ts';
import { type Service, type ServiceOptions, startService } from '../../src/service.ts';
import { newControlDatabase } from './control-databases.ts';
import { type Doors, doorsAt } from './doors.ts';

export type { JsonReply, TestOrganization } from './doors.ts';

/** A whole service on ports of its own, over the cluster that all tests share, with a control database of its own. */
export interface TestService extends Doors {
  readonly service: Service;
  readonly opsUrl: string;
  readonly observations: Observation[];
  close(): Promise<void>;
}

/** For tests that start a service for each: `describe.each(PLACEMENTS)`, POSTERN_PLACEMENT. */
export const PLACEMENTS = ['database', 'schema'] as const;

/** Where services put organizations unless told otherwise: the suite at the doors is run with one, then with the other. */
export const PLACEMENT: (typeof PLACEMENTS)[number] = process.env.TEST_PLACEMENT === 'schema' ? 'schema' : 'database';

export const TEST_SECRET = 'the secret of all test services, so that role passwords agree';

/** How a service in a test is set up, in this process or in another: over the shared cluster, with ports of its own. */
export function testVariables(): Record<string, string> {
  return {
    DATABASE_URL: inject('clusterUrl'),
    POSTERN_SECRET: TEST_SECRET,
    POSTERN_CONTROL_DATABASE: newControlDatabase(),
    POSTERN_PLACEMENT: PLACEMENT,
    POSTERN_HTTP_PORT: '0',
    POSTERN_PG_PORT: '0',
    POSTERN_OPS_PORT: '0',
    POSTERN_SIGNUPS_PER_HOUR: '1000',
    POSTERN_REFUSALS_PER_MINUTE: '1000000',
    POSTERN_BACKENDS_MAX: '24',
    // Whoever has to wait gets a turn, be the machine as busy as it may: tests of these limits set others.
    POSTERN_QUEUE_TIMEOUT_MS: '60000',
    POSTERN_LOGIN_TIMEOUT_MS: '60000',
    POSTERN_SHUTDOWN_TIMEOUT_MS: '2000',
  };
}

/** @param overrides POSTERN_ variables */
export async function startTestService(overrides: Readonly<Record<string, string>> = {}, options?: ServiceOptions): Promise<TestService> {
  const observations: Observation[] = [];
  const config = readConfig({ ...testVariables(), ...overrides });
  const service = await startService(config, (observation) => observations.push(observation), options);
  return {
    ...doorsAt(service.httpPort, service.wirePort),
    service,
    opsUrl: `http://127.0.0.1:${service.opsPort}`,
    observations,
    close: () => service.close(),
  };
}
