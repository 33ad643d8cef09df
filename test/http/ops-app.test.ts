import { expect, it } from 'vitest';
import { newControlDatabase } from '../support/control-databases.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService } from '../support/service.ts';

it('health and metrics are on the ops port, metrics nowhere else', async () => {
  const service = await startTestService();
  const acme = await service.signUp();
  await service.query(acme, 'select 1');
  await eventually('the query is counted', async () => {
    const reply = await fetch(`${service.opsUrl}/metrics`);
    expect(reply.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    const metrics = await reply.text();
    expect(metrics).not.toContain(acme.id);
    return metrics.includes('postern_queries_total{door="http",outcome="ok"} 1') && metrics.includes('postern_backends{state="idle"} 1');
  });

  for (const url of [service.httpUrl, service.opsUrl]) {
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  }
  expect((await fetch(`${service.httpUrl}/metrics`)).status).toBe(404);
  expect((await fetch(`${service.opsUrl}/api/auth/me`)).status).toBe(404);
  await service.close();
});

it('closing lets a query under way finish, and what it wrote stays', async () => {
  const overrides = { POSTERN_CONTROL_DATABASE: newControlDatabase(), POSTERN_SHUTDOWN_TIMEOUT_MS: '60000' };
  const before = await startTestService(overrides);
  const acme = await before.signUp();
  await before.query(acme, 'create table kept (n int)');
  const leased = () => before.observations.filter(({ name }) => name === 'lease.granted').length;
  const earlier = leased();
  const writing = before.query(acme, 'insert into kept select 1 from pg_sleep(0.5) returning n');
  await eventually('the query is at work', () => leased() > earlier);
  await before.close();
  expect(await writing).toMatchObject({ status: 200, body: { rows: [{ n: 1 }] } });
  await expect(fetch(before.httpUrl)).rejects.toThrow('fetch failed');

  const after = await startTestService(overrides);
  expect((await after.query(acme, 'select n from kept')).body.rows).toEqual([{ n: 1 }]);
  await after.close();
});
