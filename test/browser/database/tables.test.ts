import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import type { TestOrganization } from '../../support/service.ts';
import { goTo, useConsole } from '../support/console.ts';
import { cell, resultGrid } from '../support/grid.ts';

const scene = useConsole();
const LABEL = 'Rows of orders';

it('rows are inserted and deleted in one transaction, or not at all', async () => {
  scene.allow(/status of 409|status of 400/);
  const { page, organization } = await openOrders();
  await page.getByRole('button', { name: 'Insert row' }).click();
  await edit(page, 0, 0, '1');
  await edit(page, 0, 1, 'new');
  await cell(page, 3, 0, LABEL).click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Delete row' }).click();
  await page.getByRole('button', { name: 'Review and save' }).click();
  await page.getByRole('button', { name: 'Save, and delete 1 row' }).click();
  await page.getByRole('alert').getByText('duplicate key value').waitFor();
  expect(await customers(organization)).toEqual(['Customer 1', 'Customer 2', 'Customer 3']);
  await page.getByRole('dialog').getByRole('button', { name: 'Back' }).click();
  await edit(page, 0, 0, '4');
  await page.getByRole('button', { name: 'Review and save' }).click();
  await page.getByRole('button', { name: 'Save, and delete 1 row' }).click();
  await page.getByText(/^Saved: /).waitFor();
  expect(await customers(organization)).toEqual(['Customer 1', 'Customer 2', 'new']);
});

it('what is staged is kept over another screen and a lock', async () => {
  const { page, organization } = await openOrders();
  await edit(page, 1, 1, 'mine');
  await goTo(page, 'connect', 'Connect');
  await page.getByRole('button', { name: 'Lock' }).click();
  await page.getByRole('dialog').getByLabel('API key').fill(organization.apiKey);
  await page.getByRole('dialog').getByRole('button', { name: 'Go on' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await goTo(page, 'tables/public.orders', 'orders');
  expect(await cell(page, 1, 1, LABEL).textContent()).toBe('mine');
});

async function openOrders(): Promise<{ page: Page; organization: TestOrganization }> {
  const organization = await scene.service.signUp();
  await scene.service.query(organization, 'create table orders (id int primary key, customer text, total numeric)');
  await scene.service.query(organization, `insert into orders select n, 'Customer ' || n, n * 1.5 from generate_series(1, 3) n`);
  const { page } = await scene.openSignedIn({ organization });
  await goTo(page, 'tables/public.orders', 'orders');
  await resultGrid(page, LABEL).waitFor();
  return { page, organization };
}

async function edit(page: Page, row: number, column: number, text: string): Promise<void> {
  await cell(page, row, column, LABEL).dblclick();
  await cell(page, row, column, LABEL).locator('input').fill(text);
  await page.keyboard.press('Enter');
}

async function customers(organization: TestOrganization): Promise<readonly string[]> {
  const { body } = await scene.service.query(organization, 'select customer from orders order by id');
  return body.rows.map(({ customer }: { readonly customer: string }) => customer);
}
