import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import type { AuditEvent } from '../../src/catalog/audit/records.ts';
import { VerificationQueue } from '../../src/catalog/audit/verification.ts';
import { ControlPool } from '../../src/catalog/control-pool.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const CALLS = 100;
const ENTRIES = 15_000;

const controlDatabase = newControlDatabase();
let service: TestService;
let noisy: TestOrganization;
let other: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_CONTROL_DATABASE: controlDatabase });
  [noisy, other] = [await service.signUp(), await service.signUp()];
  const { audit } = service.service.router.catalog;
  for (let n = 0; n < ENTRIES; n += 1) audit.append(anEvent(noisy.id));
  await audit.flush();
});
afterAll(() => service.close());
afterEach(() => vi.restoreAllMocks());

function anEvent(organizationId: string): AuditEvent {
  const outcome = { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: null, durationMs: 1 } as const;
  return { organizationId, action: 'query', origin: { surface: 'http', sourceIp: '192.0.2.1' }, outcome };
}

/** @returns how many entries were found in order */
async function verify({ apiKey: key }: TestOrganization): Promise<number> {
  const { status, body } = await service.call('GET', '/api/audit/verify', { key });
  expect([status, body.ok]).toEqual([200, true]);
  return body.count;
}

describe('verifying the audit log', () => {
  it('many times at once holds up nobody else', async () => {
    const verifications = vi.spyOn(ControlPool.prototype, 'snapshot').mock.calls;
    let begunMeanwhile = Number.NaN;
    const { request } = VerificationQueue.prototype;
    vi.spyOn(VerificationQueue.prototype, 'request').mockImplementation(function (this: VerificationQueue, id, signal) {
      const before = verifications.length;
      const answer = request.call(this, id, signal);
      if (id === other.id) void answer.then(() => (begunMeanwhile = verifications.length - before));
      return answer;
    });
    const calls = Array.from({ length: CALLS }, () => verify(noisy));
    expect(await verify(other)).toBeGreaterThan(0);
    // Its own, and before it, besides the one that runs, at most one that the rest share.
    expect(begunMeanwhile).toBeLessThanOrEqual(2);
    for (const count of await Promise.all(calls)) expect(count).toBeGreaterThan(ENTRIES);
  });

  it('is given up when the callers have gone', async () => {
    const url = new URL(inject('clusterUrl'));
    url.pathname = `/${controlDatabase}`;
    const operator = new pg.Client({ connectionString: url.href });
    await operator.connect();
    await operator.query('begin; lock table postern.audit_blocks in access exclusive mode');
    const abandoned = () =>
      service.observations.filter(({ name, ...of }) => name === 'http.request' && 'outcome' in of && of.outcome.httpStatus === 499);
    const callers = new AbortController();
    const headers = { authorization: `Bearer ${noisy.apiKey}` };
    const calls = Array.from({ length: 3 }, () => fetch(`${service.httpUrl}/api/audit/verify`, { headers, signal: callers.signal }));
    const answers = Promise.allSettled(calls);
    const waiting = async () => {
      const here = 'database = (select oid from pg_database where datname = current_database())';
      const table = "relation = 'postern.audit_blocks'::regclass and mode = 'AccessShareLock'";
      const { rows } = await operator.query(`select from pg_locks where ${here} and ${table} and not granted`);
      return rows.length > 0;
    };
    await eventually('the first waits for the lock', waiting);
    callers.abort();
    await answers;
    await eventually('all are given up', () => abandoned().length === 3);
    await operator.query('rollback');
    await operator.end();
    expect(await verify(other)).toBeGreaterThan(0);
  });
});
