import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { RefusalLimit } from '../../src/router/refusal-limit.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

const PER_MINUTE = 60;

/** Two processes of one Postern. */
let processes: [TestService, TestService];
let organization: TestOrganization;
beforeAll(async () => {
  const variables = { ...testVariables(), POSTERN_REFUSALS_PER_MINUTE: String(PER_MINUTE) };
  processes = [await startTestService(variables), await startTestService(variables)];
  organization = await processes[0].signUp();
});
afterAll(() => Promise.all(processes.map((one) => one.close())));

const wrongKey = () => ({ ...organization, apiKey: `pst_${'0'.repeat(36)}` });

async function logIn(service: TestService, as: TestOrganization): Promise<string> {
  try {
    await (await service.connect(as)).end();
    return 'ok';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

it('failed logins count for all processes, and only for that organization', async () => {
  const [first, second] = processes;
  const failures = [first, second, first, second, first, second, first, second, first, second];
  for (const service of failures) expect(await logIn(service, wrongKey())).toContain('password authentication failed');
  for (const service of processes) {
    await eventually('it has been told', async () => (await logIn(service, wrongKey())).includes('too many failed login attempts'));
    expect(await logIn(service, organization)).toBe('ok');
  }
  const other = await first.signUp();
  expect(await logIn(second, other)).toBe('ok');
});

it('so do requests without a valid key, by their address', async () => {
  const [first, second] = processes;
  const refusal = async (service: TestService) => (await service.call('GET', '/api/auth/me', { key: wrongKey().apiKey })).status;
  const told = vi.spyOn(RefusalLimit.prototype, 'countElsewhere');
  let refused = 0;
  while ((await refusal(first)) === 401) refused += 1;
  // Failed logins have counted too.
  expect(refused).toBeGreaterThan(PER_MINUTE / 2);
  await eventually('the other process has been told', () => told.mock.calls.reduce((sum, [, count]) => sum + count, 0) >= refused);
  told.mockRestore();
  let elsewhere = 0;
  while ((await refusal(second)) === 401) elsewhere += 1;
  // By itself it would have refused as many at once.
  expect(elsewhere).toBeLessThan(PER_MINUTE / 2);
  // Whoever has a valid key is served.
  expect((await second.call('GET', '/api/auth/me', { key: organization.apiKey })).status).toBe(200);
});
