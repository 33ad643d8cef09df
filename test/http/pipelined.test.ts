import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, type RawClient } from './raw-client.ts';

/* Node's server carries requests out that come behind others on a connection before those have been answered. */

let service: TestService;
let acme: TestOrganization;
let port: number;
beforeAll(async () => {
  service = await startTestService({ POSTERN_HTTP_REQUESTS_PER_TENANT: '3' });
  acme = await service.signUp();
  port = Number(new URL(service.httpUrl).port);
});
afterAll(() => service.close());

const request = (sql: string, id: string) => plainRequest(acme.apiKey, { sql }, `X-Request-Id: ${id}`);

function outcomeOf(id: string) {
  for (const seen of service.observations) if (seen.name === 'http.request' && seen.origin.requestId === id) return seen.outcome;
  return undefined;
}

it.each<[how: string, go: (client: RawClient) => unknown]>([
  ['altogether', ({ socket }) => socket.destroy()],
  ['with a reset', ({ socket }) => socket.resetAndDestroy()],
  ['by sending no more', ({ socket }) => socket.end()],
])('those of a client that goes %s are ended, told, and count no more', async (how, go) => {
  const client = await openElsewhere(port);
  const ids = ['first', 'second', 'third'].map((name) => `${name}-${how.replaceAll(' ', '-')}`);
  const granted = () => service.observations.filter(({ name }) => name === 'lease.granted').length;
  const before = granted();
  client.send(ids.map((id) => request('select pg_sleep(20)', id)).join(''));
  await eventually('all are at work', () => granted() - before === ids.length);
  expect((await service.query(acme, 'select 1')).status).toBe(429);
  go(client);
  await eventually('all are told', () => ids.every((id) => outcomeOf(id) !== undefined));
  expect(ids.map(outcomeOf)).toMatchObject(ids.map(() => ({ status: 'error', httpStatus: 499, sqlstate: '57014' })));
  expect((await service.query(acme, 'select 1')).status).toBe(200);
});
