import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { goTo, useConsole } from '../support/console.ts';
import { write } from '../support/editor.ts';
import { cell, resultGrid } from '../support/grid.ts';
import { HOSTILE } from '../support/hostile.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const scene = useConsole();

it('markup in the names of organizations and keys, and in entries of the audit log, is text', async () => {
  const organization = await scene.service.signUp(HOSTILE);
  await scene.service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: HOSTILE, scope: 'read' } });
  await scene.service.query(organization, `select '${HOSTILE}'`);
  const { page } = await scene.openSignedIn({ organization });
  await isShown(page, page.getByRole('navigation', { name: 'Screens' }));
  await goTo(page, 'keys', 'Keys');
  await isShown(page, page.getByRole('region', { name: 'Keys' }));
  await page.getByRole('button', { name: `Revoke ${HOSTILE}` }).click();
  await isShown(page, page.getByRole('dialog'));
  await page.keyboard.press('Escape');
  await goTo(page, 'audit', 'Audit');
  await isShown(page, page.getByRole('region', { name: 'Audit log' }));
  await page.getByRole('row', { name: `select '${HOSTILE}'` }).click();
  await isShown(page, page.getByRole('dialog'));
  await page.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: 'Lock' }).click();
  await isShown(page, page.getByRole('dialog', { name: `Key for ${HOSTILE}` }));
});

it('markup in the name, the SQL and the error of a migration is text', async () => {
  scene.allow(/status of 4\d\d/);
  const { page } = await scene.openSignedIn();
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('hostile');
  await write(page, 'SQL', `select '${HOSTILE}'::int;`);
  await page.getByRole('button', { name: 'Dry run' }).click();
  await isShown(page, page.getByRole('alert'));
  await isShown(page, page.locator('.migration-outcome pre'));
  await write(page, 'SQL', `do $$ begin raise warning '${HOSTILE}'; end $$;`);
  await page.getByRole('button', { name: 'Dry run' }).click();
  await isShown(page, page.locator('.migration-outcome .notice.warning'));
  await page.getByRole('button', { name: 'Apply …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click();
  await page.getByText('“hostile” is applied').waitFor();
  await goTo(page, 'migrations', 'Migrations');
  await page.getByRole('row', { name: 'hostile applied' }).click();
  await isShown(page, page.getByRole('dialog').locator('pre'));
});

it('markup in the names of tables and columns, and in values, is text', async () => {
  const { page, organization } = await scene.openSignedIn({ width: 1_600 });
  const name = `"${HOSTILE.replaceAll('"', '""')}"`;
  const made = await scene.service.query(organization, `create table ${name} (id int primary key, ${name} text)`);
  expect(made.status).toBe(200);
  await scene.service.query(organization, `insert into ${name} values (1, $1)`, [HOSTILE]);
  await goTo(page, 'tables', 'Tables');
  await isShown(page, page.locator('#main'));
  await page.getByRole('link', { name: HOSTILE }).click();
  await isShown(page, page.getByRole('heading', { level: 1 }));
  const label = `Rows of ${HOSTILE}`;
  await isShown(page, resultGrid(page, label).locator('.grid-head'));
  await isShown(page, cell(page, 0, 1, label));
  await cell(page, 0, 1, label).dblclick();
  await cell(page, 0, 1, label).locator('input').fill(`${HOSTILE}!`);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Review and save' }).click();
  await isShown(page, page.getByRole('dialog').locator('pre'));
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByText(/^Saved: /).waitFor();
  await isShown(page, cell(page, 0, 1, label));
  for (const [path, title] of SCREEN_NAMES) {
    await goTo(page, path, title);
    expect(await page.evaluate(() => [document.images.length, 'wasRun' in globalThis])).toEqual([0, false]);
  }
});

it('markup in a result, an error, a warning, a plan and a saved query is text', async () => {
  scene.allow(/status of 4\d\d/);
  const { page } = await scene.openSignedIn({ width: 1_600 });
  await goTo(page, 'sql', 'SQL');
  const run = async (sql: string, how = 'Run') => {
    await write(page, 'SQL', sql);
    await page.getByRole('button', { name: how, exact: true }).click();
  };
  const column = `"${HOSTILE.replaceAll('"', '""')}"`;
  await run(`select '${HOSTILE}' as ${column}`);
  await isShown(page, resultGrid(page).locator('.grid-head'));
  await isShown(page, cell(page, 0, 0));
  await cell(page, 0, 0).dblclick();
  await isShown(page, page.getByRole('dialog'));
  await page.keyboard.press('Escape');
  await run(`select '${HOSTILE}' as ${column} where 'a' <> '${HOSTILE}'`, 'Analyze');
  await page.locator('.sql-plan').waitFor();
  await run(`do $$ begin raise warning '%', '${HOSTILE}'; end $$`);
  await isShown(page, page.locator('.sql-warnings'));
  await run(`select '${HOSTILE}'::int`);
  await isShown(page, page.getByRole('alert'));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByLabel('Name', { exact: true }).fill('hostile');
  await page.getByLabel('Description').fill(HOSTILE);
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const library = page.getByRole('complementary', { name: 'Saved queries and history' });
  await isShown(page, library);
  await library.getByRole('tab', { name: 'History' }).click();
  await isShown(page, library);
});

/** The text stands there as it is, and nothing was made of it. */
async function isShown(page: Page, where: ReturnType<Page['locator']>): Promise<void> {
  await where
    .getByText(HOSTILE)
    .first()
    .or(where.filter({ hasText: HOSTILE }))
    .first()
    .waitFor();
  expect(await page.evaluate(() => [document.images.length, 'wasRun' in globalThis])).toEqual([0, false]);
}
