import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Faults of our own, which no client can bring about: they are made. */
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
});
afterAll(() => service.close());
afterEach(() => vi.restoreAllMocks());

const FAULT = new TypeError('a secret is not a function');

it.each([
  { where: 'on the way to the server', code: 'XX000', make: () => vi.spyOn(ReplyQueue.prototype, 'push') },
  { where: 'on the way back', code: '08006', make: () => vi.spyOn(ReplyQueue.prototype, 'receive') },
])('a fault $where ends the session, is in the log, and is not told the client', async ({ code, make }) => {
  const client = await service.connect(organization);
  client.on('error', () => {});
  make().mockImplementationOnce(() => {
    throw FAULT;
  });
  const error = await client.query('SELECT 1').then(
    () => undefined,
    (reason: Error & { readonly code?: string }) => reason,
  );
  expect(error?.code).toBe(code);
  expect(error?.message).not.toContain('secret');
  expect(service.observations).toContainEqual(expect.objectContaining({ name: 'service.failure', cause: FAULT }));
  service.observations.length = 0;
  const other = await service.connect(organization);
  expect((await other.query('SELECT 2 AS n')).rows).toEqual([{ n: 2 }]);
  await other.end();
});
