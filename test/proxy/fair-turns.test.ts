import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Two organizations that are both at work: what one has sent waits for its turn while the other has its own. */
let service: TestService;
let busy: TestOrganization;
let quiet: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  busy = await service.signUp();
  quiet = await service.signUp();
  await service.query(busy, 'CREATE TABLE written (n int)');
});
afterAll(() => service.close());

const CLIENTS = 60;
const TERMINATE = Buffer.from([0x58, 0, 0, 0, 4]);

/** @returns how to end them */
async function quietClients(): Promise<() => Promise<void>> {
  const client = await service.connect(quiet);
  let isOver = false;
  const work = (async () => {
    while (!isOver) expect((await client.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
  })();
  return async () => {
    isOver = true;
    await work;
    await client.end();
  };
}

it('what clients send last is carried out, also where they close the connection behind it', async () => {
  const end = await quietClients();
  const sessions = await Promise.all(Array.from({ length: CLIENTS }, () => openSession(service, busy)));
  for (const [n, session] of sessions.entries()) {
    void session.write(Buffer.concat([queryMessage(`INSERT INTO written VALUES (${n})`), TERMINATE]));
    session.halfClose();
  }
  await expect
    .poll(async () => (await service.query(busy, 'SELECT count(*)::int AS n, sum(n)::int AS sum FROM written')).body.rows)
    .toEqual([{ n: CLIENTS, sum: (CLIENTS * (CLIENTS - 1)) / 2 }]);
  await end();
});

it('large results arrive whole and in order', async () => {
  const end = await quietClients();
  const clients = await Promise.all(Array.from({ length: 8 }, () => service.connect(busy)));
  const expected = createHash('md5');
  for (let n = 1; n <= 60_000; n++) expected.update(`${n}${'x'.repeat(n % 200)}`);
  const digest = expected.digest('hex');
  await Promise.all(
    clients.map(async (client) => {
      const { rows } = await client.query("SELECT n, repeat('x', n % 200) AS x FROM generate_series(1, 60000) n");
      const hash = createHash('md5');
      for (const { n, x } of rows) hash.update(`${n}${x}`);
      expect(hash.digest('hex')).toBe(digest);
      await client.end();
    }),
  );
  await end();
});
