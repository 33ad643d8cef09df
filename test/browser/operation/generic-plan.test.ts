import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { explain, type QueryStatistic, whyNoPlan } from '../../../http/console/screens/insights/insights.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../../support/service.ts';
import { callAs } from '../tables/opened.ts';

const { signal } = new AbortController();

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    const sql = `CREATE TABLE "a $9" (id int PRIMARY KEY, note text); INSERT INTO "a $9" SELECT i, i FROM generate_series(1, 5000) i; ANALYZE "a $9"`;
    const { status, body } = await service.call('POST', '/api/migrations', { key: organization.apiKey, body: { name: 'table', sql } });
    expect(status, JSON.stringify(body)).toBe(201);
    callAs(service, organization);
  });
  afterAll(() => service.close());

  it('a plan holds for whatever values there are, and is not that for NULL', async () => {
    const plan = await explain(counted(`select note from "a $9" where id = $1 and note <> '$7' limit $2`), signal);
    expect(plan).toContain('Index Scan using "a $9_pkey" on "a $9"');
    expect(plan).toContain('Index Cond: (id = $1)');
    expect(plan).not.toContain('One-Time Filter');
  });

  it('a statement without values, and one that would write, are planned and not run', async () => {
    expect(await explain(counted('select count(*) from "a $9"'), signal)).toMatch(/^Aggregate/);
    expect(await explain(counted('delete from "a $9" where id > $1'), signal)).toMatch(/^Delete on "a \$9"/);
    const { body } = await service.call('POST', '/api/query', {
      key: organization.apiKey,
      body: { sql: 'select count(*)::int as count from "a $9"' },
    });
    expect(body).toMatchObject({ rows: [{ count: 5000 }] });
  });

  it.each([
    ['select id from "a $9" where now() > now() - interval $1 and note < $2 limit $3', 'One-Time Filter: (now() > (now() - $1))'],
    ['select interval $1 day to hour from "a $9"', 'Seq Scan'],
    ['select 1 from "a $9" where now() > timestamp with time zone $1 and pg_catalog.text $2 = note', 'One-Time Filter: (now() > $1)'],
    ['select 1 from "a $9" where extract($1 from now()) > id', 'Filter'],
    ['select g from generate_series($1,$2) as g where g > $3', 'Function Scan on generate_series g'],
    ['select g from "a $9", generate_series(id, $1) as g', 'Function Scan on generate_series g'],
    ['select 1 from "a $9" where id::numeric($1,$2) > cast(note as varchar($3))::numeric', '((id)::numeric > '],
    ['select -$1, $2 + $3, current_date + $4, $5 is null from "a $9"', 'Seq Scan'],
    [`select concat('€😀', $1, '$9'), $2 * $3 from "a $9"`, 'Seq Scan'],
  ])('a plan needs no constant that was part of the grammar, or has told a type: %s', async (sql, expected) => {
    expect(await explain(counted(sql), signal)).toContain(expected);
  });

  it.each([
    ['select interval $1 from nowhere', '42P01'],
    ['select mood $1', '42704'],
    ['select from where $1', '42601'],
    [`select ${Array.from({ length: 30 }, (_, n) => `$${n + 1}`).join(' + ')}, ${'date $1, '.repeat(30)} 1`, '42601'],
  ])('a text that means nothing without its constants fails in the second statement: %s', async (sql, sqlstate) => {
    await expect(explain(counted(sql), signal)).rejects.toMatchObject({ problem: { statementIndex: 1, sqlstate } });
  });

  it('nothing stays prepared', async () => {
    const statement = { sql: "select count(*)::int as count from pg_prepared_statements where name = 'console_plan'" };
    const { body } = await service.call('POST', '/api/query', { key: organization.apiKey, body: statement });
    expect(body).toMatchObject({ rows: [{ count: 0 }] });
  });
});

describe('whyNoPlan', () => {
  it.each([
    'select 1',
    '/* a */ WITH a AS (select 1) select * from a',
    '(select 1)',
    'merge into a using b on true when matched then do nothing',
  ])('says nothing of %s', (sql) => expect(whyNoPlan(counted(sql))).toBeUndefined());

  it('names what is not planned, and texts that are cut', () => {
    expect(whyNoPlan(counted('vacuum a'))).toBe('VACUUM is not planned.');
    expect(whyNoPlan(counted(`select '${'a'.repeat(7_992)}'`))).toBe('The text is cut, so it cannot be planned.');
  });
});

function counted(sql: string): QueryStatistic {
  const seenAt = '2026-01-01T00:00:00Z';
  const counts = {
    calls: 1,
    errors: 0,
    totalMs: 1,
    meanMs: 1,
    p99Ms: 1,
    maxMs: 1,
    rows: 1,
    bytes: 1,
    firstSeenAt: seenAt,
    lastSeenAt: seenAt,
  };
  return { sql, queryId: '1', ...counts };
}
