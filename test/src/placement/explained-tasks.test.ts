import { expect, test } from 'vitest';
import { ExplainedTasks, PLAN_ROW_MAX_CHARACTERS } from '../../../src/rewriting/rewriter.ts';

const SCHEMA = 'org_0nya3w7wic6d';

/** Rows of the text format, as Citus 13.2 has sent them. */
function shown(rows: string): string {
  const tasks = new ExplainedTasks(SCHEMA);
  return rows
    .split('\n')
    .map((row) => tasks.row(row))
    .join('\n');
}

/** The other formats are one row. */
function shownWhole(row: string): string {
  return new ExplainedTasks(SCHEMA).row(row);
}

test('the text format, with strings and names that look like those of shards', () => {
  const rows = `
Custom Scan (Citus Adaptive)
  Output: remote_scan.v_202411, remote_scan.mood_202411, remote_scan.f_202411
  Task Count: 1
  Tasks Shown: All
  ->  Task
        Query: SELECT v_202411, 'a'::${SCHEMA}.mood_202411 AS mood_202411, ${SCHEMA}.f_202411(id) AS f_202411 FROM ${SCHEMA}.events_202411_102013 e WHERE ((kind OPERATOR(pg_catalog.=) 'it''s ${SCHEMA}.events_202411_102013'::text) OR (id OPERATOR(pg_catalog.=) ANY (SELECT orders.id FROM ${SCHEMA}.orders_102009 orders)))
        Node: host=10.0.0.7 port=7002 dbname=postern_shared
        ->  Seq Scan on ${SCHEMA}.events_202411_102013 e
              Output: e.v_202411, 'a'::mood_202411, 1
              Filter: ((e.kind = 'it''s ${SCHEMA}.events_202411_102013'::text) OR (hashed SubPlan 1))
              SubPlan 1
                ->  Seq Scan on ${SCHEMA}.orders_102009 orders
                      Output: orders.id`;
  expect(shown(rows)).toBe(`
Custom Scan (Citus Adaptive)
  Output: remote_scan.v_202411, remote_scan.mood_202411, remote_scan.f_202411
  Task Count: 1
  Tasks Shown: All
  ->  Task
        Query: SELECT v_202411, 'a'::public.mood_202411 AS mood_202411, public.f_202411(id) AS f_202411 FROM public.events_202411 e WHERE ((kind OPERATOR(pg_catalog.=) 'it''s ${SCHEMA}.events_202411_102013'::text) OR (id OPERATOR(pg_catalog.=) ANY (SELECT orders.id FROM public.orders orders)))
        Node: worker
        ->  Seq Scan on public.events_202411 e
              Output: e.v_202411, 'a'::mood_202411, 1
              Filter: ((e.kind = 'it''s ${SCHEMA}.events_202411_102013'::text) OR (hashed SubPlan 1))
              SubPlan 1
                ->  Seq Scan on public.orders
                      Output: orders.id`);
});

test.each([
  [
    '->  Seq Scan on orders_102009 o  (cost=0.00..18.00 rows=1000 width=26)',
    '->  Seq Scan on orders o  (cost=0.00..18.00 rows=1000 width=26)',
  ],
  ['->  Index Scan using orders_note_102009 on orders_102009 orders', '->  Index Scan using orders_note on orders'],
  ['->  Parallel Index Only Scan Backward using "a on b_102009" on t_102009', '->  Parallel Index Only Scan Backward using "a on b" on t'],
  [`->  Seq Scan on "Odd Name's_102010" "Odd Name's"`, `->  Seq Scan on "Odd Name's"`],
  ['->  Custom Scan (ColumnarScan) on facts_102011 facts', '->  Custom Scan (ColumnarScan) on facts'],
  ['->  Insert on users_102008 citus_table_alias', '->  Insert on users citus_table_alias'],
  ['->  Merge on users_102008 u', '->  Merge on users u'],
  ['->  Append\n->  Seq Scan on parts_202411_102015 parts_1', '->  Append\n->  Seq Scan on parts_202411 parts_1'],
  ['->  CTE Scan on b_202411\nOutput: b_202411.id', '->  CTE Scan on b_202411\nOutput: b_202411.id'],
  ['->  Function Scan on f_202411 f', '->  Function Scan on f_202411 f'],
  [
    '->  Update on t_102009 t\nIndex Cond: (t.a_202411 = 1)\nTrigger note_102009 on t_102009: calls=1',
    '->  Update on t\nIndex Cond: (t.a_202411 = 1)\nTrigger note on t: calls=1',
  ],
])('what follows the tasks: %s', (rows, expected) => {
  expect(shown(`Tasks Shown: All\n${rows}`)).toBe(`Tasks Shown: All\n${expected}`);
});

test('the parts of a plan that run on the coordinator stay', () => {
  const subplan = `
        ->  Distributed Subplan 6_1
              ->  Seq Scan on events_202411
              Node: host=a port=1 dbname=b
  Task Count: 1`;
  expect(shown(subplan)).toBe(subplan);
  const [before, behind] = ['\n  Tasks Shown: All\n  ->  Seq Scan on t_102009 t', '\n  Tasks Shown: All\n  ->  Seq Scan on t'];
  expect(shown(`${before}${subplan}${before}`)).toBe(`${behind}${subplan}${behind}`);
});

test('JSON', () => {
  const plan = (words: Record<'node' | 'index' | 'table' | 'schema' | 'query', string>) =>
    JSON.stringify(
      [
        {
          Plan: {
            'Distributed Query': {
              Subplans: [{ PlannedStmt: [{ Plan: { 'Relation Name': 'temp_202411', Schema: 'pg_temp' } }] }],
              Job: {
                'Tasks Shown': 'All',
                Tasks: [
                  {
                    Query: `SELECT id FROM ${words.query} t WHERE note = '${SCHEMA}.t_102010 "\\'`,
                    Node: words.node,
                    'Remote Plan': [
                      [
                        {
                          Plan: {
                            'Index Name': words.index,
                            'Relation Name': words.table,
                            Schema: words.schema,
                            Output: ['"Col"', 'a_202411'],
                            Filter: "(note = 't_102010'::text)",
                          },
                        },
                      ],
                    ],
                  },
                ],
              },
            },
          },
        },
      ],
      undefined,
      2,
    );
  const server = { node: 'host=a.b port=1 dbname=c', index: "it's_102010", table: "Odd Name's_102010", schema: SCHEMA };
  const client = { node: 'worker', index: "it's", table: "Odd Name's", schema: 'public' };
  expect(shownWhole(plan({ ...server, query: `${SCHEMA}."Odd Name's_102010"` }))).toBe(plan({ ...client, query: `public."Odd Name's"` }));
});

test('YAML and XML', () => {
  const yaml = (node: string, table: string) => `- Plan:
    Distributed Query:
      Job:
        Tasks Shown: "All"
        Tasks:
          - Node: "${node}"
            Remote Plan:
              - Plan:
                  Relation Name: "${table}"
                  Filter: "(note = 't_102010'::text)"`;
  expect(shownWhole(yaml('host=a port=1 dbname=c', 't_102010'))).toBe(yaml('worker', 't'));
  const xml = (node: string, table: string, schema: string) => `<explain xmlns="http://www.postgresql.org/2009/explain">
   <Tasks-Shown>All</Tasks-Shown>
     <Query>SELECT id FROM ${schema}."${table}" t WHERE note &lt; 't_102010'</Query>
     <Node>${node}</Node>
       <Relation-Name>${table}</Relation-Name>
       <Schema>${schema}</Schema>
       <Filter>(note &lt; 't_102010'::text)</Filter>`;
  expect(shownWhole(xml('host=a port=1 dbname=c', "it's_102010", SCHEMA))).toBe(xml('worker', "it's", 'public'));
});

test('a row of a plan that is none of Citus stays as it is, and so does a very long one', () => {
  for (const row of [`Seq Scan on ${SCHEMA}.t_102010`, '  Node: host=a port=1 dbname=c', '']) expect(shown(row)).toBe(row);
  const long = `Tasks Shown: All\n${' '.repeat(PLAN_ROW_MAX_CHARACTERS)}\nNode: host=a port=1 dbname=c`;
  expect(shownWhole(long)).toBe(long);
});
