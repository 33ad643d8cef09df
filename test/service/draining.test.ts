import { expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService } from '../support/service.ts';

it('a stop is announced before the doors close: balancers see it, and everybody is served until then', async () => {
  const service = await startTestService({ POSTERN_DRAIN_MS: '15000' });
  const acme = await service.signUp();
  const early = await service.connect(acme);
  const ended = new Promise<Error>((resolve) => early.once('error', resolve));
  const readiness = () =>
    Promise.all(
      [service.httpUrl, service.opsUrl].map(async (url) =>
        fetch(`${url}/readyz`).then(async (reply) => [reply.status, await reply.json()]),
      ),
    );
  const ready = [200, { status: 'ready' }];
  expect(await readiness()).toEqual([ready, ready]);

  const closed = service.close();
  await eventually('it is announced', async () => (await readiness()).every(([status]) => status === 503));
  expect(await readiness()).toMatchObject([
    [503, { code: 'shutting_down' }],
    [503, { code: 'shutting_down' }],
  ]);
  for (const path of ['/api/query', '/api/transaction']) {
    const body = path === '/api/query' ? { sql: 'SELECT 1 AS one' } : { statements: [{ sql: 'SELECT 1 AS one' }] };
    const reply = await fetch(service.httpUrl + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect([reply.status, reply.headers.get('connection')]).toEqual([200, 'close']);
    expect(await reply.text()).toContain('"one"');
  }
  expect((await early.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  const late = await service.connect(acme);
  await late.query('SELECT 1');
  await late.end();

  expect(await ended).toMatchObject({ severity: 'FATAL', code: '57P01' });
  await closed;
  await expect(fetch(service.httpUrl)).rejects.toThrow('fetch failed');
});
