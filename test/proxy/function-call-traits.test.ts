import pg from 'pg';
import { expect, inject, it } from 'vitest';
import { STATEFUL_FUNCTIONS } from '../../proxy/frontend-messages.ts';

it('functions that are called by OID are the ones that are meant', async () => {
  const client = new pg.Client({ ...inject('cluster') });
  await client.connect();
  const { rows } = await client.query<{ name: string; oids: number[] }>(
    `SELECT proname AS name, array_agg(oid::int ORDER BY oid::int) AS oids FROM pg_catalog.pg_proc
     WHERE proname = ANY ($1) AND pronamespace = 'pg_catalog'::regnamespace GROUP BY 1`,
    [Object.keys(STATEFUL_FUNCTIONS)],
  );
  await client.end();
  expect(Object.fromEntries(rows.map(({ name, oids }) => [name, oids]))).toEqual(STATEFUL_FUNCTIONS);
});
