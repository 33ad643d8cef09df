import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { goTo, useConsole } from '../support/console.ts';
import { write } from '../support/editor.ts';
import { HOSTILE } from '../support/hostile.ts';

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
