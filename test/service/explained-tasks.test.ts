import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLAN_ROW_MAX_CHARACTERS } from '../../src/rewriting/rewriter.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/**
 * PostgreSQL shows the lines of a string in a plan as they are, so a string stands in for what Citus says of its tasks. What Citus
 * really says is in test/citus.
 */
const linesOf = (schema: string, column = 'id') => [
  '   Tasks Shown: All',
  '   ->  Task',
  `         Query: SELECT ${column} FROM ${schema}.notes_102009 notes`,
  '         Node: host=10.0.0.7 port=7002 dbname=postern_shared',
  '         ->  Index Scan using notes_pkey_102009 on notes_102009 notes',
];
const shownLines = (column = 'id') => [
  '   Tasks Shown: All',
  '   ->  Task',
  `         Query: SELECT ${column} FROM public.notes notes`,
  '         Node: worker',
  '         ->  Index Scan using notes_pkey on notes',
];

/** A name of many characters, in a plan; PostgreSQL makes it when it plans the statement. */
const long = (characters: number) => ({ made: `' || repeat('c', ${characters}) || '`, seen: 'c'.repeat(characters) });

describe.each(['schema', 'database'] as const)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  let client: pg.Client;
  let unchanged: readonly string[];
  let expected: readonly string[];
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    client = await service.connect(organization);
    await client.query('CREATE TABLE notes (note text)');
    unchanged = linesOf(organization.id);
    expected = placement === 'schema' ? shownLines() : unchanged;
  });
  afterAll(async () => {
    await client.end();
    await service.close();
  });

  const select = (lines: readonly string[]) => `SELECT FROM notes WHERE note = '\n${lines.join('\n')}\n'`;
  const explain = (lines: readonly string[] = unchanged) => `EXPLAIN (COSTS OFF) ${select(lines)}`;
  /** The plan without its first two lines, and the end of the string. */
  const planOf = ({ rows }: { readonly rows: readonly Record<string, string>[] }) => rows.slice(2, -1).map((row) => row['QUERY PLAN']);

  it('EXPLAIN shows neither workers nor shards in a Query, and in an extended query', async () => {
    expect(planOf(await client.query(explain()))).toEqual(expected);
    expect(planOf(await client.query(`/* a comment */ explain ${select(unchanged)}; -- another`))).toEqual(expected);
    expect(planOf(await client.query({ text: explain(), queryMode: 'extended' } as pg.QueryConfig))).toEqual(expected);
    for (let run = 0; run < 2; run += 1) expect(planOf(await client.query({ name: 'plan', text: explain() }))).toEqual(expected);
    await client.query(`PREPARE notes AS ${select(unchanged)}`);
    expect(planOf(await client.query('EXPLAIN (COSTS OFF) EXECUTE notes'))).toEqual(expected);
    await client.query('DEALLOCATE notes');
  });

  it('EXPLAIN shows neither when its rows are fetched one by one', async () => {
    expect(planOf(await client.query({ text: explain(), rows: 1 } as pg.QueryConfig))).toEqual(expected);
  });

  it('a row that does not arrive at once is changed too, and a very long one is not', async () => {
    const { made, seen } = long(100_000);
    const lines = placement === 'schema' ? shownLines(seen) : linesOf(organization.id, seen);
    for (const queryMode of ['simple', 'extended'])
      expect(planOf(await client.query({ text: explain(linesOf(organization.id, made)), queryMode } as pg.QueryConfig))).toEqual(lines);
    expect(planOf((await service.query(organization, explain(linesOf(organization.id, made)))).body)).toEqual(lines);
    const longer = long(PLAN_ROW_MAX_CHARACTERS);
    const [, , row] = planOf(await client.query(explain(linesOf(organization.id, longer.made))));
    expect(row).toBe(linesOf(organization.id, longer.seen)[2]);
  });

  it('EXPLAIN shows neither over HTTP, alone and in a transaction', async () => {
    for (let run = 0; run < 2; run += 1) expect(planOf((await service.query(organization, explain())).body)).toEqual(expected);
    const { body } = await service.call('POST', '/api/transaction', {
      key: organization.apiKey,
      body: { statements: [{ sql: explain() }, { sql: `${explain()} OR note = $1`, params: ['a'] }] },
    });
    for (const result of body.results) expect(planOf(result)).toEqual(expected);
    const neon = await service.call('POST', '/sql', {
      key: organization.apiKey,
      headers: { 'neon-connection-string': `postgres://${organization.id}:${organization.apiKey}@localhost/${organization.id}` },
      body: { query: explain(), params: [] },
    });
    expect(planOf(neon.body)).toEqual(expected);
  });

  it('rows of other statements stay as they are', async () => {
    const values = unchanged.map((line) => `($$${line}$$)`).join(', ');
    const rows = unchanged.map((line) => ({ 'QUERY PLAN': line }));
    const table = `SELECT * FROM (VALUES ${values}) AS plan ("QUERY PLAN")`;
    expect((await client.query(table)).rows).toEqual(rows);
    expect((await client.query({ name: 'rows', text: table })).rows).toEqual(rows);
    expect((await service.query(organization, table)).body.rows).toEqual(rows);
    const [, selected] = (await client.query(`${explain()}; ${table}`)) as unknown as readonly pg.QueryResult[];
    expect(selected?.rows).toEqual(rows);
  });
});
