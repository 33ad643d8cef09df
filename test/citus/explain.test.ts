import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { doors, rows, useCitus, workerOf } from './installation.ts';
import { asSuperuser } from './nodes.ts';

useCitus();

let organization: TestOrganization;
let client: pg.Client;
beforeAll(async () => {
  organization = await doors.signUp();
  client = await doors.connect(organization);
  for (const definition of [
    "CREATE TYPE mood_202411 AS ENUM ('fine')",
    "CREATE FUNCTION f_202411(int) RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'",
    'CREATE TABLE users (id int PRIMARY KEY, name text)',
    'CREATE TABLE events_202411 (id int PRIMARY KEY, uid int REFERENCES users (id), v_202411 text, mood mood_202411)',
    'CREATE INDEX events_v ON events_202411 (v_202411)',
    `CREATE TABLE "Odd Name's" (id int, "Col" int)`,
    'CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at)',
    "CREATE TABLE parts_202411 PARTITION OF parts FOR VALUES FROM ('2024-11-01') TO ('2024-12-01')",
    'CREATE TRIGGER note AFTER INSERT ON events_202411 FOR EACH ROW EXECUTE FUNCTION note()',
    "INSERT INTO users VALUES (1, 'a')",
  ])
    await client.query(definition);
});
afterAll(() => client.end());

const STATEMENTS = [
  `SELECT v_202411, 'fine'::mood_202411, f_202411(e.id) FROM events_202411 e, users WHERE uid = users.id AND v_202411 = 'x_202411'`,
  'SELECT * FROM events_202411 WHERE id = 7',
  'SELECT * FROM events_202411, LATERAL (SELECT * FROM users WHERE id = uid OFFSET 0) AS u ORDER BY v_202411 LIMIT 3',
  'WITH u_202411 AS MATERIALIZED (SELECT id FROM users) SELECT * FROM u_202411 JOIN events_202411 USING (id)',
  'SELECT * FROM "Odd Name\'s" AS one, "Odd Name\'s" WHERE one.id = 3',
  'SELECT * FROM parts WHERE id = 4',
  'SELECT * FROM events_202411 FOR UPDATE',
  `INSERT INTO events_202411 VALUES (1, 1, 'it''s x_202411', 'fine') ON CONFLICT (id) DO UPDATE SET v_202411 = 'b' RETURNING *`,
  'INSERT INTO events_202411 (id, uid) VALUES (2, 1) RETURNING *',
  'UPDATE parts SET id = 5',
  'DELETE FROM events_202411 USING users WHERE uid = users.id',
];

const OPTIONS = ['COSTS OFF', 'COSTS OFF, VERBOSE', 'COSTS OFF, ANALYZE, VERBOSE, TIMING OFF, SUMMARY OFF'];

describe.each(['TEXT', 'JSON', 'YAML', 'XML'])('in the format %s', (format) => {
  test('plans show neither workers nor shards, whatever is explained', async () => {
    const shards = await asSuperuser<{ shard: string }>(
      `SELECT shardid::text AS shard FROM pg_dist_shard WHERE logicalrelid::text ~ '${organization.id}'`,
    );
    expect(shards.length).toBeGreaterThan(4);
    const hidden = new RegExp(`${shards.map(({ shard }) => shard).join('|')}|${organization.id}|port=|postern_shared`);
    for (const options of OPTIONS) {
      for (const statement of STATEMENTS) {
        await client.query('BEGIN');
        const { rows: plan } = await client.query(`EXPLAIN (${options}, FORMAT ${format}) ${statement}`);
        await client.query('ROLLBACK');
        const text = plan.map((row) => (format === 'JSON' ? JSON.stringify(row['QUERY PLAN']) : row['QUERY PLAN'])).join('\n');
        expect(text).not.toMatch(hidden);
        expect(text).toMatch(/Citus Adaptive/);
        expect(text).toMatch(/Node\W+worker/);
      }
    }
  });
});

test('what the organization itself has named and written stays', async () => {
  const { rows: plan } = await client.query(`EXPLAIN (VERBOSE, COSTS OFF) ${STATEMENTS[0]}`);
  const text = plan.map((row) => row['QUERY PLAN']).join('\n');
  for (const part of [
    "SELECT e.v_202411, 'fine'::public.mood_202411 AS mood_202411, public.f_202411(e.id) AS f_202411 FROM public.events_202411 e, public.users users WHERE",
    "(e.v_202411 OPERATOR(pg_catalog.=) 'x_202411'::text)",
    ' on public.events_202411 e\n',
    "(e.v_202411 = 'x_202411'::text)",
  ])
    expect(text).toContain(part);
});

test('an index is named as the organization has named it', async () => {
  await client.query('SET enable_seqscan = off');
  const plan = async (sql: string) => (await client.query(`EXPLAIN (COSTS OFF) ${sql}`)).rows.map((row) => row['QUERY PLAN'].trim());
  expect(await plan('SELECT id FROM events_202411 WHERE id = 7')).toContain(
    '->  Index Only Scan using events_202411_pkey on events_202411',
  );
  await client.query('PREPARE one (int) AS SELECT id FROM events_202411 WHERE id = $1');
  expect(await plan('EXECUTE one (7)')).toContain('->  Index Only Scan using events_202411_pkey on events_202411');
  await client.query('RESET enable_seqscan');
});

test('a temporary table keeps its name', async () => {
  await client.query('BEGIN');
  await client.query('CREATE TEMPORARY TABLE temp_202411 (id int) ON COMMIT DROP');
  for (const options of OPTIONS.slice(0, 2)) {
    const { rows: plan } = await client.query(`EXPLAIN (${options}, FORMAT YAML) SELECT * FROM temp_202411 JOIN users USING (id)`);
    expect(plan[0]?.['QUERY PLAN']).toMatch(/Relation Name: "temp_202411"[\s\S]*Relation Name: "users"/);
  }
  await client.query('ROLLBACK');
});

test('the HTTP door shows the same, and errors too', async () => {
  const [row] = (await rows(organization, 'EXPLAIN (FORMAT JSON, VERBOSE) SELECT * FROM users WHERE id = $1', [1])) as [
    Record<string, [{ Plan: { 'Distributed Query': { Job: { Tasks: [object] } } } }]>,
  ];
  const [task] = row['QUERY PLAN']?.[0].Plan['Distributed Query'].Job.Tasks ?? [];
  expect(await workerOf(organization, 'users')).toBeGreaterThan(0);
  expect(task).toMatchObject({
    Node: 'worker',
    Query: expect.stringMatching(/^SELECT id, name FROM public\.users /),
    'Remote Plan': [[{ Plan: { 'Relation Name': 'users', Schema: 'public', Alias: 'users' } }]],
  });
  const { body } = await doors.query(organization, "EXPLAIN ANALYZE INSERT INTO users VALUES (1, 'b')");
  expect(body).toMatchObject({ sqlstate: '23505', message: 'duplicate key value violates unique constraint "users_pkey"' });
});
