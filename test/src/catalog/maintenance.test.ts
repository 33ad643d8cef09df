import { afterAll, beforeAll, expect, test } from 'vitest';
import { newOrganization, openCatalog, TestControlDatabase } from './control-database.ts';

const DAY_MS = 86_400_000;

let database: TestControlDatabase;
beforeAll(async () => {
  database = await TestControlDatabase.create();
});
afterAll(() => database.drop());

/** @returns how many audit blocks an organization has whose entries are too old */
async function oldBlocks(): Promise<() => Promise<number>> {
  const { catalog, clock } = await openCatalog(database);
  clock.offsetMs = -100 * DAY_MS;
  const { organization } = await newOrganization(catalog);
  await catalog.close();
  return async () => (await database.query('select from postern.audit_blocks where organization_id = $1', [organization.id])).length;
}

test('once the catalog is closed, no further deletion begins', async () => {
  const blocks = await oldBlocks();
  await database.query('begin');
  await database.query('lock table postern.signup_attempts');
  const { catalog } = await openCatalog(database);
  const closed = catalog.close();
  await database.query('commit');
  await closed;
  expect(await blocks()).toBeGreaterThan(0);
});

test('what cannot be deleted is reported, and the rest is deleted all the same', async () => {
  const blocks = await oldBlocks();
  expect(await blocks()).toBeGreaterThan(0);
  await database.query(`
    create function postern.refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
    create trigger refuse before delete on postern.signup_attempts execute function postern.refuse()`);

  const { catalog, observed } = await openCatalog(database);
  expect(await observed('service.warning')).toMatchObject({ message: 'old counts of sign-ups could not be deleted' });
  await expect.poll(blocks).toBe(0);
  await catalog.close();
});
