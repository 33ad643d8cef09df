import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { SeededRandom } from '../support/random.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Many clients on few backends, each doing what the others must not notice. */
let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE ledger (client int, round int)');
});
afterAll(() => service.close());

const CLIENTS = 24;
const ROUNDS = 40;

interface Member {
  readonly client: pg.Client;
  readonly id: number;
  /** What its session should remember. */
  zone: string;
  committed: number;
}

type Move = (member: Member, round: number, random: SeededRandom) => Promise<void>;

const MOVES: readonly Move[] = [
  async ({ client, id }, round) => {
    const { rows } = await client.query(`SELECT ${id} AS id, ${round} AS round`);
    expect(rows).toEqual([{ id, round }]);
  },
  // Every client has given the same name to another statement.
  async ({ client, id }, round) => {
    const { rows } = await client.query({ name: 'mine', text: `SELECT $1::int + ${id * 1_000} AS n`, values: [round] });
    expect(rows).toEqual([{ n: id * 1_000 + round }]);
  },
  async (member, round) => {
    const { client, id } = member;
    await client.query('BEGIN');
    await client.query('INSERT INTO ledger VALUES ($1, $2)', [id, round]);
    const { rows } = await client.query('SELECT count(*)::int AS n FROM ledger WHERE client = $1', [id]);
    expect(rows).toEqual([{ n: member.committed + 1 }]);
    await client.query('COMMIT');
    member.committed += 1;
  },
  async ({ client, id }, round) => {
    await client.query('BEGIN');
    await client.query('INSERT INTO ledger VALUES ($1, $2)', [id, round]);
    await expect(client.query('SELECT 1 / 0')).rejects.toMatchObject({ code: '22012' });
    await expect(client.query('SELECT 1')).rejects.toMatchObject({ code: '25P02' });
    await client.query('ROLLBACK');
  },
  async (member, _round, random) => {
    member.zone = `Etc/GMT+${random.below(12)}`;
    await member.client.query(`SET TimeZone = '${member.zone}'`);
  },
  async ({ client, zone }) => {
    expect((await client.query("SELECT current_setting('TimeZone') AS zone")).rows).toEqual([{ zone }]);
  },
  async ({ client }) => {
    await expect(client.query('SELECT nonsense')).rejects.toMatchObject({ code: '42703' });
  },
  async ({ client, id }, _round, random) => {
    const rows = 1 + random.below(2_000);
    const { rowCount, rows: received } = await client.query('SELECT $1::int AS id, repeat($2, 50) FROM generate_series(1, $3)', [
      id,
      'x',
      rows,
    ]);
    expect([rowCount, received.every((row) => row.id === id)]).toEqual([rows, true]);
  },
  async ({ client, id }) => {
    await client.query(`CREATE TEMPORARY TABLE IF NOT EXISTS own (id int); INSERT INTO own VALUES (${id})`);
    expect((await client.query('SELECT DISTINCT id FROM own')).rows).toEqual([{ id }]);
    await client.query('DISCARD TEMP');
  },
  async ({ id }, round) => {
    const { body } = await service.query(organization, 'SELECT $1::int AS id, $2::int AS round, current_setting($3) AS zone', [
      id,
      round,
      'TimeZone',
    ]);
    expect(body.rows).toEqual([{ id, round, zone: 'UTC' }]);
  },
];

/** Opens a transaction, asks for more than it reads, and is gone, one way or another. */
async function makeTrouble(random: SeededRandom): Promise<void> {
  const client = await openSession(service, organization);
  const select = queryMessage('SELECT repeat($$y$$, 1000) FROM generate_series(1, 500)');
  const messages = [
    queryMessage('BEGIN'),
    queryMessage('INSERT INTO ledger VALUES (-1, -1)'),
    ...Array<Buffer>(random.below(10)).fill(select),
  ];
  for (const chunk of random.cut(Buffer.concat(messages), 200)) void client.write(chunk);
  for (let reads = random.below(5); reads > 0; reads -= 1) await client.read();
  if (random.below(2) === 0) client.reset();
  else client.disconnect();
}

it.each([1, 2])('each client gets its own answers and keeps its own session (seed %i)', async (seed) => {
  await service.query(organization, 'TRUNCATE ledger');
  const members = await Promise.all(
    Array.from({ length: CLIENTS }, async (_, id): Promise<Member> => {
      return { client: await service.connect(organization), id, zone: 'UTC', committed: 0 };
    }),
  );
  const random = new SeededRandom(seed);
  const troubles = Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let count = 0; count < 10; count += 1) await makeTrouble(random);
    }),
  );
  await Promise.all(
    members.map(async (member) => {
      const own = new SeededRandom(seed * 1_000 + member.id);
      for (let round = 0; round < ROUNDS; round += 1) await MOVES[own.below(MOVES.length)]?.(member, round, own);
      await member.client.end();
    }),
  );
  await troubles;
  const { body } = await service.query(organization, 'SELECT client, count(*)::int AS n FROM ledger GROUP BY 1 ORDER BY 1');
  expect(body.rows).toEqual(members.filter(({ committed }) => committed > 0).map(({ id, committed }) => ({ client: id, n: committed })));
  // None of the backends is stuck with somebody who has gone.
  const again = await Promise.all(Array.from({ length: 4 }, () => service.connect(organization)));
  await Promise.all(again.map((client) => client.query('BEGIN')));
  await Promise.all(again.map((client) => client.end()));
});
