import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import type { TestOrganization } from '../../support/service.ts';
import { seriousFindings } from '../support/axe.ts';
import { goTo, settle, useConsole } from '../support/console.ts';
import { write } from '../support/editor.ts';
import { SCREEN_NAMES } from '../support/screens.ts';
import { keepScreenshot } from '../support/screenshot.ts';

const scene = useConsole();
const THEMES = ['light', 'dark'] as const;
const WIDE = 1_280;
const PHONE = 390;
const LOOKS = THEMES.flatMap((theme) => [WIDE, PHONE].map((width) => ({ theme, width, height: width === PHONE ? 844 : 800 })));

/** What is on the screens besides those of the navigation: the address, its heading, and its name in the pictures. */
const MORE = [
  ['migrations/new', 'New migration', 'new-migration'],
  ['tables/public.orders', 'orders', 'table'],
] as const;

describe.each(LOOKS)('in the $theme theme, $width pixels wide', (view) => {
  it('before somebody has signed in', async () => {
    const page = await scene.open(view);
    await check(page, `sign-in-${view.theme}-${view.width}`);
    await page.getByRole('tab', { name: 'Sign up' }).click();
    await check(page, `sign-up-${view.theme}-${view.width}`);
  });

  it('every screen is accessible, has contrast, and does not scroll sideways', async () => {
    const { page } = await scene.openSignedIn({ ...view, organization: await organizationWithData() });
    for (const [path, title, name = path] of [...SCREEN_NAMES, ...MORE]) {
      await goTo(page, path, title);
      await check(page, `${name}-${view.theme}-${view.width}`);
    }
  });

  it('so are results, plans, errors, and the saved queries', async () => {
    scene.allow(/status of 400/);
    const { page } = await scene.openSignedIn({ ...view, organization: await organizationWithData() });
    const look = `${view.theme}-${view.width}`;
    await goTo(page, 'sql', 'SQL');
    await write(page, 'SQL', 'select *, null as nothing from orders join customers on customers.id = customer');
    await runAndCheck(page, 'Run', '.grid-row', `sql-result-${look}`);
    await runAndCheck(page, 'Analyze', '.sql-plan', `sql-plan-${look}`);
    await write(page, 'SQL', 'select *\nfrom orders\nwhere totall > 5');
    await runAndCheck(page, 'Run', '.sql-failure', `sql-error-${look}`);
    await runAndCheck(page, 'Saved queries and history', '.sql-library', `sql-library-${look}`);
  });

  it('so are the palette, the menu and the dialogs', async () => {
    const { page } = await scene.openSignedIn(view);
    await page.keyboard.press('Control+k');
    await check(page, `palette-${view.theme}-${view.width}`);
    await page.keyboard.press('Escape');
    if (view.width === PHONE) {
      await page.getByRole('button', { name: 'Menu', exact: true }).click();
      await check(page, `menu-${view.theme}-${view.width}`);
      await page.getByRole('button', { name: 'Close the menu' }).click({ position: { x: PHONE - 10, y: 400 } });
    }
    await goTo(page, 'keys', 'Keys');
    await page.getByRole('button', { name: 'New key' }).click();
    await check(page, `new-key-${view.theme}-${view.width}`);
    await page.keyboard.press('Escape');
    await goTo(page, 'audit', 'Audit');
    await page.locator('tbody tr').first().click();
    await check(page, `audit-entry-${view.theme}-${view.width}`);
  });
});

async function runAndCheck(page: Page, how: string, shown: string, name: string): Promise<void> {
  await page.getByRole('button', { name: how, exact: true }).click();
  await page.locator(shown).first().waitFor();
  await settle(page);
  await check(page, name);
}

async function organizationWithData(): Promise<TestOrganization> {
  const organization = await scene.service.signUp();
  const sql = [
    'create table customers (id int primary key, name text not null)',
    'create table orders (id int primary key, customer int references customers, total numeric(10, 2), placed timestamptz default now())',
    `insert into customers select n, 'Customer ' || n from generate_series(1, 40) n`,
    'insert into orders select n, 1 + n % 40, n * 1.25 from generate_series(1, 500) n',
  ].join(';\n');
  await scene.service.call('POST', '/api/migrations', { key: organization.apiKey, body: { name: '2025-01-31-orders', sql } });
  await scene.service.query(organization, 'select customer, sum(total) from orders group by customer order by 2 desc');
  return organization;
}

async function check(page: Page, name: string): Promise<void> {
  await keepScreenshot(page, name);
  const [scrolled, width] = await page.evaluate(() => [document.scrollingElement?.scrollWidth ?? 0, innerWidth]);
  expect(scrolled, `the width of ${name}`).toBeLessThanOrEqual(width ?? 0);
  expect(await seriousFindings(page), `axe on ${name}`).toEqual([]);
}
