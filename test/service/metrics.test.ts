import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

const metrics = async () => (await fetch(`${service.opsUrl}/metrics`)).text();

describe('metrics', () => {
  it('count what is asked at both doors, by how it ended', async () => {
    const organization = await service.signUp();
    const client = await service.connect(organization);
    await client.query('SELECT 1');
    await client.query('SELECT $1::int4', [2]);
    // Makes the service ask the server what the session holds: that is no request of the client's.
    await client.query('SET work_mem = 1024');
    await expect(client.query('SELECT 1 / 0')).rejects.toThrow();
    await expect(client.query('SELECT $1::int4 / 0', [1])).rejects.toThrow();
    await client.query('SELECT 3');
    await client.end();
    await service.query(organization, 'SELECT 1');
    const told = ['wire",outcome="ok"} 4', 'wire",outcome="error"} 2', 'http",outcome="ok"} 1'];
    await eventually('all are counted', async () => {
      const text = await metrics();
      return told.every((line) => text.includes(`postern_queries_total{door="${line}\n`));
    });
  });
});
