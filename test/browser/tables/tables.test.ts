import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { PLACEMENTS, type TestOrganization } from '../../support/service.ts';
import { seriousFindings } from '../support/axe.ts';
import { goTo, settle, useConsole } from '../support/console.ts';
import { HOSTILE } from '../support/hostile.ts';
import { HOSTILE_NAME, KINDS } from './kinds.ts';

const TABLES = `${KINDS}
  CREATE TABLE customers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, vip boolean NOT NULL DEFAULT false);
  CREATE TABLE orders (id int PRIMARY KEY, customer bigint REFERENCES customers, total numeric(10,2));
  CREATE TABLE nokey (a int);
  CREATE TABLE ${HOSTILE_NAME} (${HOSTILE_NAME} text PRIMARY KEY);
  COMMENT ON TABLE ${HOSTILE_NAME} IS $$${HOSTILE}$$;
  INSERT INTO ${HOSTILE_NAME} VALUES ($$${HOSTILE}$$);
  INSERT INTO customers (name) SELECT 'Customer ' || n FROM generate_series(1, 500) n;
  INSERT INTO orders SELECT n, nullif(1 + n % 10, 3), n FROM generate_series(1, 500) n;
  INSERT INTO nokey VALUES (1);
  ANALYZE customers, orders, nokey;`;

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  const scene = useConsole({ POSTERN_PLACEMENT: placement });

  const openTable = async (name: string, known?: TestOrganization) => {
    const organization = known ?? (await scene.service.signUp());
    if (known === undefined) {
      const client = await scene.service.connect(organization);
      await client.query(TABLES);
      await client.end();
    }
    const { page } = await scene.openSignedIn({ organization });
    await show(page, name);
    return { page, organization };
  };

  it('lists tables with their sizes, and opens one', async () => {
    const { page } = await openTable('customers');
    await goTo(page, 'tables', 'Tables');
    await page.getByRole('row', { name: /^orders ≈ 500 3 [\d.]+ kB$/ }).waitFor();
    await page.getByLabel('Find').fill('cust');
    expect(await page.getByRole('row').allInnerTexts()).toHaveLength(2);
    await page.getByRole('row', { name: /^customers/ }).press('Enter');
    await page.getByRole('heading', { level: 1, name: 'customers' }).waitFor();
    await cell(page, 1, 2).getByText('Customer 1').waitFor();
  });

  it('reads on at the end, sorts, filters, and counts', async () => {
    const { page } = await openTable('customers');
    await page.getByText('200 read of ≈ 500').waitFor();
    await page.getByRole('button', { name: 'Count exactly' }).click();
    await page.getByText('200 read of 500').waitFor();
    await grid(page).press('Control+End');
    await page.getByText('400 read of 500').waitFor();
    await grid(page).press('Control+End');
    await page.getByText('500 rows').waitFor();
    await page.getByRole('columnheader', { name: /^id/ }).click();
    await page.getByRole('columnheader', { name: /^id/ }).click();
    await cell(page, 1, 1).getByText('500', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Filter', exact: true }).click();
    await page.getByLabel('Column').selectOption('name');
    await page.getByLabel('Comparison').selectOption('begins with');
    await page.getByLabel('Value').fill('customer 49');
    await page.getByLabel('Value').press('Enter');
    await page.getByText('11 rows').waitFor();
  });

  it('saves what was typed, and shows what somebody else has written meanwhile', async () => {
    scene.allow(/status of 400/);
    const { page, organization } = await openTable('customers');
    await type(page, 1, 2, "Ada's");
    await type(page, 2, 2, 'Alan');
    await menu(page, 3, 1, 'Delete row');
    await page.getByRole('button', { name: 'Insert row' }).click();
    await type(page, 1, 2, 'new');
    await page.getByText('2 rows changed, 1 new, 1 deleted, not saved').waitFor();
    await scene.service.query(organization, `update customers set name = 'theirs' where id in (1, 2)`);
    // Nothing is lost on another screen.
    await goTo(page, 'tables', 'Tables');
    await page.getByText('4 changes not saved').waitFor();
    await show(page, 'customers');
    await page.getByRole('button', { name: 'Review and save' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText("SET name = 'Ada''s'").waitFor();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByRole('heading', { name: 'Somebody changed these rows' }).waitFor();
    await dialog.getByRole('row', { name: "name Customer 1 theirs Ada's" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    expect(await names(organization)).toEqual(['theirs', 'theirs', 'Customer 3']);
    await dialog.getByRole('button', { name: 'Overwrite with mine' }).first().click();
    await dialog.getByRole('button', { name: 'Take theirs' }).click();
    await dialog.getByRole('button', { name: 'Save, and delete 1 row' }).click();
    await page.getByText('Saved: 1 row changed, 1 new, 1 deleted.').waitFor();
    expect(await names(organization)).toEqual(["Ada's", 'theirs', 'Customer 4']);
    expect(await texts(page, 1, 4)).toEqual(['501 new false', "1 Ada's false", '2 theirs false', '4 Customer 4 false']);
  });

  it('asks before changes are discarded', async () => {
    const { page, organization } = await openTable('customers');
    await cell(page, 1, 2).click();
    await grid(page).press('Enter');
    await page.keyboard.type('x');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
    await cell(page, 1, 2).getByText('Customer 1').waitFor();
    expect(await page.getByText('not saved').count()).toBe(0);
    expect((await names(organization))[0]).toBe('Customer 1');
  });

  it('says why rows are read-only', async () => {
    const { page, organization } = await openTable('nokey');
    await page.getByText('Read-only: no key tells the rows apart').waitFor();
    await cell(page, 1, 1).dblclick();
    await page.getByRole('dialog', { name: 'a' }).waitFor();
    const { body } = await scene.service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'r', scope: 'read' } });
    const reader = await openTable('customers', { ...organization, apiKey: body.apiKey });
    await reader.page.getByText('Read-only: the scope of this key is read.').waitFor();
    expect(await reader.page.getByRole('button', { name: 'Insert row' }).count()).toBe(0);
  });

  it('shows values of all kinds, and writes back those that were not changed as they were', async () => {
    const { page, organization } = await openTable('kinds');
    expect(await texts(page, 1, 1)).toEqual([
      expect.stringMatching(
        /^1 9223372036854775807 123456789012345678901234567890\.1234567890 1e-40 NaN 2025-01-31 09:30:00\.123456\+00 2025-01-31 09:30:00\.5/,
      ),
    ]);
    const before = await scene.service.query(organization, 'select (k::text) from kinds k order by id');
    await type(page, 4, 2, '7');
    await menu(page, 2, 1, 'Delete row');
    await page.getByRole('button', { name: 'Review and save' }).click();
    await page.getByRole('button', { name: 'Save, and delete 1 row' }).click();
    await page.getByText('Saved: 1 row changed, 1 deleted.').waitFor();
    const after = await scene.service.query(organization, 'select (k::text) from kinds k order by id');
    expect(after.body.rows).toEqual([before.body.rows[0], before.body.rows[2], { k: before.body.rows[3].k.replace('(4,,', '(4,7,') }]);
  });

  it('follows references there and back', async () => {
    const { page } = await openTable('orders');
    await menu(page, 3, 2, 'Go to the row of customers');
    await page.getByRole('heading', { level: 1, name: 'customers' }).waitFor();
    await page.getByText('1 row', { exact: true }).waitFor();
    expect(await texts(page, 1, 1)).toEqual(['4 Customer 4 false']);
    await menu(page, 1, 2, 'Rows of orders that refer to this');
    await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
    await page.getByText('50 rows').waitFor();
    await page.getByRole('button', { name: 'Open in SQL' }).click();
    await page.getByText("WHERE customer = '4'").waitFor();
  });

  it('imports a file, and names the line that is wrong', async () => {
    scene.allow(/status of 400/);
    const { page, organization } = await openTable('orders');
    await importFile(page, 'id;TOTAL;other\n1001;"1.5";a\n1002;;b\n');
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole('button', { name: 'Import 2 rows' }).click();
    await page.getByText('2 rows imported into orders.').waitFor();
    expect((await scene.service.query(organization, 'select * from orders where id > 1000 order by id')).body.rows).toEqual([
      { id: 1001, customer: null, total: '1.50' },
      { id: 1002, customer: null, total: null },
    ]);
    await importFile(
      page,
      `id,total\n${Array.from({ length: 700 }, (_, index) => `${2_000 + index},${index === 600 ? HOSTILE.replaceAll('"', '') : 1}`).join('\n')}`,
    );
    await page.getByRole('button', { name: 'Import 700 rows' }).click();
    await page.getByText('Line 602 of the file').waitFor();
    await page.getByText('Nothing is imported.').waitFor();
  });

  it('names, comments and values with markup are text', async () => {
    const { page } = await openTable(HOSTILE);
    await cell(page, 1, 1).getByText(HOSTILE).waitFor();
    await goTo(page, 'tables', 'Tables');
    await page.getByRole('row', { name: HOSTILE }).waitFor();
    expect(await page.evaluate(() => [document.images.length, 'wasRun' in globalThis])).toEqual([0, false]);
  });

  const names = async (organization: TestOrganization): Promise<readonly string[]> => {
    const { body } = await scene.service.query(organization, 'select name from customers order by id limit 3');
    return body.rows.map(({ name }: { readonly name: string }) => name);
  };
});

async function show(page: Page, name: string): Promise<void> {
  const quoted = /^[a-z]+$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  await goTo(page, `tables/${encodeURIComponent(`public.${quoted}`)}`, name);
  await settle(page);
  await grid(page).waitFor();
}

function grid(page: Page) {
  return page.getByRole('grid');
}

/** Both from 1; the head is not counted. */
function cell(page: Page, row: number, column: number) {
  return page.locator(`[role=row][aria-rowindex="${row + 1}"] [role=gridcell][aria-colindex="${column + 1}"]`);
}

async function texts(page: Page, first: number, last: number): Promise<readonly string[]> {
  const rows = Array.from({ length: last - first + 1 }, (_, index) =>
    page.locator(`[role=row][aria-rowindex="${first + index + 1}"] [role=gridcell]`),
  );
  return Promise.all(rows.map(async (cells) => (await cells.allInnerTexts()).join(' ')));
}

async function type(page: Page, row: number, column: number, text: string): Promise<void> {
  await cell(page, row, column).dblclick();
  await page.keyboard.type(text);
  await page.keyboard.press('Enter');
}

async function menu(page: Page, row: number, column: number, entry: string): Promise<void> {
  await cell(page, row, column).click({ button: 'right' });
  await page.getByRole('menuitem', { name: entry, exact: true }).click();
}

async function importFile(page: Page, csv: string): Promise<void> {
  await page.getByRole('button', { name: 'Import CSV' }).click();
  await page.getByLabel('CSV file').setInputFiles({ name: 'orders.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) });
  await page.getByText('orders.csv').waitFor();
}
