import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** A text over HTTP means what it means now, although a backend has prepared it before: `t` is found along the search path. */
describe('a table that is put ahead of another of its name', () => {
  let service: TestService;
  let acme: TestOrganization;
  let client: Client;
  beforeAll(async () => {
    // The first schema in the search path is then one that the organization can make.
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_PLACEMENT: 'database' });
  });
  afterAll(() => service.close());
  beforeEach(async () => {
    acme = await service.signUp();
    client = await service.connect(acme);
    for (const sql of [`CREATE SCHEMA ${acme.id}`, 'CREATE TABLE public.t AS SELECT 1 AS a', `CREATE TABLE ${acme.id}.z AS SELECT 2 AS a`])
      await query(sql);
  });

  afterEach(() => client.end());

  async function query(sql: string): Promise<unknown[]> {
    const { status, body } = await service.query(acme, sql);
    expect({ status, body }).toMatchObject({ status: 200 });
    return body.rows;
  }

  const migrate = async (sql: string) => {
    const reply = await service.call('POST', '/api/migrations', { key: acme.apiKey, body: { name: 'ahead', sql } });
    expect(reply).toMatchObject({ status: 201 });
  };

  it.each([
    ['renamed on the wire', (id: string) => client.query(`ALTER TABLE ${id}.z RENAME TO t`)],
    ['made on the wire', (id: string) => client.query(`CREATE TABLE ${id}.t AS SELECT 2 AS a`)],
    ['renamed over HTTP', (id: string) => query(`ALTER TABLE ${id}.z RENAME TO t`)],
    ['made over HTTP', (id: string) => query(`CREATE TABLE ${id}.t AS SELECT 2 AS a`)],
    ['made by SELECT INTO', (id: string) => query(`SELECT 2 AS a INTO ${id}.t`)],
    ['made by a DO block', (id: string) => query(`DO 'BEGIN CREATE TABLE ${id}.t AS SELECT 2 AS a; END'`)],
    ['made by a migration', (id: string) => migrate(`CREATE TABLE ${id}.t AS SELECT 2 AS a`)],
  ])('%s', async (_how, change) => {
    const ask = () => query('SELECT a FROM t');
    await client.query('BEGIN');
    // On the other backend, often enough that it is prepared there.
    for (let round = 0; round < 10; round += 1) expect(await ask()).toEqual([{ a: 1 }]);
    await client.query('COMMIT');
    await change(acme.id);
    await client.query('BEGIN');
    for (let round = 0; round < 3; round += 1) expect(await ask()).toEqual([{ a: 2 }]);
    await client.query('COMMIT');
  });
});
