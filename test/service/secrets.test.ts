import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

/** A key in all the places where a key does not belong. */
let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
let variables: Record<string, string>;
beforeAll(async () => {
  installation = await makeInstallation();
  variables = { ...testVariables(), POSTERN_LOG_LEVEL: 'trace' };
  postern = await installation.start(variables);
  organization = await postern.signUp();
});
afterAll(() => installation.remove());

const secretOf = (key: string) => key.slice('pst_'.length + 8);

/** @returns the error, as the driver shows it to whoever logs errors */
async function refusal(login: pg.ClientConfig): Promise<string> {
  const client = new pg.Client({ host: '127.0.0.1', port: postern.wirePort, ...login });
  const error = await client.connect().then(
    () => undefined,
    (reason: Error) => reason,
  );
  return JSON.stringify({ ...error, message: error?.message });
}

it('keys are in no log, no audit entry, no metric and nothing that the server shows, and come back in no refusal (A18)', async () => {
  const { id: user, apiKey } = organization;
  const asUser = await refusal({ user: apiKey, database: user, password: 'x' });
  expect(asUser).toContain('28P01');
  const refusals = [
    await refusal({ user, database: user, password: `${apiKey}x` }),
    await refusal({ user, database: user, password: apiKey.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a')) }),
    JSON.stringify((await postern.call('GET', '/api/auth/me', { key: `${apiKey}x` })).body),
    JSON.stringify((await postern.call('POST', '/api/query', { key: 'x', body: { sql: 'SELECT 1', apiKey } })).body),
  ];
  for (const text of refusals) expect(text).not.toContain(secretOf(apiKey));
  await postern.call('GET', `/api/auth/me?key=${apiKey}`);
  await postern.call('GET', `/${apiKey}`, { headers: { 'user-agent': apiKey } });

  const client = await postern.connect(organization, { application_name: 'innocent' });
  await expect(client.query("SELECT 'x' FROM nowhere")).rejects.toThrow();
  const shown = await client.query("SELECT string_agg(setting, ' ') AS all FROM pg_settings");
  const operator = new pg.Client(inject('cluster'));
  await operator.connect();
  const activity = await operator.query('SELECT string_agg(a::text, $1) AS all FROM pg_stat_activity a', ['']);
  await operator.end();
  const told = once(client, 'error');
  const rotated = await postern.call('POST', '/api/auth/rotate-key', { key: apiKey });
  await told;
  const newKey: string = rotated.body.apiKey;

  const audit = async () => JSON.stringify((await postern.call('GET', '/api/audit', { key: newKey })).body);
  await eventually('it is in the audit log', async () => (await audit()).includes('rotate'));
  const metrics = await (await fetch(`${postern.opsUrl}/metrics`)).text();
  const log = JSON.stringify(postern.log());
  for (const mark of ['login.failed', 'pst_***']) expect(log).toContain(mark);
  const everything = [log, await audit(), metrics, shown.rows[0].all, activity.rows[0].all].join('\n');
  expect(everything).toContain(user);
  for (const key of [apiKey, newKey]) expect(everything).not.toContain(secretOf(key));
});
