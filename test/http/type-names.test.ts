import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** A reply names the types of its columns as they are called now, whichever door has renamed them. */
describe.each(PLACEMENTS)('placement %s', (POSTERN_PLACEMENT) => {
  let service: TestService;
  let acme: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_PLACEMENT });
  });
  afterAll(() => service.close());
  beforeEach(async () => {
    acme = await service.signUp();
    await query("CREATE TYPE mood AS ENUM ('low', 'high')");
    await query('CREATE DOMAIN amount AS int8');
    await query("CREATE TABLE notes AS SELECT 'low'::mood AS mood, ARRAY['low']::mood[] AS moods, ARRAY[1]::amount[] AS amounts");
  });

  async function query(sql: string, params?: readonly unknown[]) {
    const reply = await service.query(acme, sql, params);
    expect(reply.body).not.toHaveProperty('error');
    return reply.body;
  }

  const names = ({ fields }: { fields: { dataType: string }[] }) => fields.map(({ dataType }) => dataType);
  const namesIn = async (sql: string) => names(await query(sql));
  const NOTES = 'SELECT mood, moods, amounts, n FROM notes n';

  /** Often enough that the statement is prepared on a backend and runs in one round trip. */
  async function expectNames(expected: readonly string[]): Promise<void> {
    for (let round = 0; round < 12; round += 1) expect(await namesIn(NOTES)).toEqual(expected);
    expect(await namesIn(`${NOTES} LIMIT 1`)).toEqual(expected);
    const { status, body } = await transaction([{ sql: NOTES }]);
    expect(status).toBe(200);
    expect(names(body.results[0])).toEqual(expected);
  }

  const transaction = (statements: readonly object[], more: object = {}) =>
    service.call('POST', '/api/transaction', { key: acme.apiKey, body: { statements, ...more } });

  it('a type renamed over HTTP', async () => {
    await expectNames(['mood', 'mood[]', 'amount[]', 'notes']);
    await query('ALTER TYPE mood RENAME TO temper');
    await expectNames(['temper', 'temper[]', 'amount[]', 'notes']);
    await query('ALTER DOMAIN amount RENAME TO sum_of_money');
    await query('ALTER TABLE notes RENAME TO remarks');
    await query('CREATE VIEW notes AS SELECT * FROM remarks');
    await expectNames(['temper', 'temper[]', 'sum_of_money[]', 'notes']);
    expect(await namesIn('SELECT r FROM remarks r')).toEqual(['remarks']);
  });

  it('a type renamed on the wire, by itself or in a transaction', async () => {
    const client = await service.connect(acme);
    await expectNames(['mood', 'mood[]', 'amount[]', 'notes']);
    await client.query('ALTER TYPE mood RENAME TO temper');
    await expectNames(['temper', 'temper[]', 'amount[]', 'notes']);
    await client.query('BEGIN');
    await client.query('ALTER TYPE temper RENAME TO humor');
    await expectNames(['temper', 'temper[]', 'amount[]', 'notes']);
    await client.query('COMMIT');
    await expectNames(['humor', 'humor[]', 'amount[]', 'notes']);
    await client.end();
  });

  it('a type renamed in a DO block', async () => {
    await expectNames(['mood', 'mood[]', 'amount[]', 'notes']);
    await query('DO $$ BEGIN ALTER TYPE mood RENAME TO temper; END $$');
    await expectNames(['temper', 'temper[]', 'amount[]', 'notes']);
  });

  it('a type renamed in a transaction that is rolled back', async () => {
    await expectNames(['mood', 'mood[]', 'amount[]', 'notes']);
    const rename = [{ sql: 'ALTER TYPE mood RENAME TO temper' }, { sql: NOTES }];
    const { body } = await transaction([{ sql: NOTES }, ...rename], { rollback: true });
    expect(names(body.results[2])).toEqual(['temper', 'temper[]', 'amount[]', 'notes']);
    await expectNames(['mood', 'mood[]', 'amount[]', 'notes']);
  });

  it('types that are dropped and made anew have the values of the new ones', async () => {
    const rows = async () => (await query('SELECT * FROM kinds')).rows;
    const make = async (base: string, label: string) => {
      await query(`CREATE DOMAIN kind AS ${base}`);
      await query(`CREATE TYPE pair AS (a ${base}, b kind)`);
      await query(`CREATE TYPE word AS ENUM ('${label}')`);
      await query(
        `CREATE TABLE kinds AS SELECT 1::kind AS k, ARRAY[1]::kind[] AS ks, ROW(1, 2)::pair AS p, ARRAY['${label}']::word[] AS w`,
      );
    };
    await make('int8', 'old');
    for (let round = 0; round < 12; round += 1) expect(await rows()).toEqual([{ k: '1', ks: ['1'], p: '(1,2)', w: ['old'] }]);
    for (const kind of ['TABLE kinds', 'TYPE pair', 'TYPE word', 'DOMAIN kind']) await query(`DROP ${kind}`);
    await make('int4', 'new');
    for (let round = 0; round < 12; round += 1) expect(await rows()).toEqual([{ k: 1, ks: [1], p: '(1,2)', w: ['new'] }]);
    await query('INSERT INTO kinds VALUES ($1, $2, $3, $4)', [2, [3], '(4,5)', ['new']]);
    expect((await rows())[1]).toEqual({ k: 2, ks: [3], p: '(4,5)', w: ['new'] });
  });
});
