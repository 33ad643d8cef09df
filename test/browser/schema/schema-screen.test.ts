import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { PLACEMENTS, type TestOrganization } from '../../support/service.ts';
import { seriousFindings } from '../support/axe.ts';
import { goTo, useConsole } from '../support/console.ts';
import { HOSTILE } from '../support/hostile.ts';
import { keepScreenshot } from '../support/screenshot.ts';

const NAME = `"${HOSTILE.replaceAll('"', '""')}"`;
const TABLES = `
  CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
  CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, total numeric(10, 2) DEFAULT 0);
  CREATE INDEX orders_customer ON orders (customer);
  CREATE TABLE ${NAME} (${NAME} int PRIMARY KEY, customer int REFERENCES customers); COMMENT ON TABLE ${NAME} IS '${HOSTILE}';
  CREATE TYPE mood AS ENUM ('sad', '${HOSTILE}');
  CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2';
  CREATE VIEW names AS SELECT name FROM customers`;

describe.each(PLACEMENTS)('with a %s for each organization', (placement) => {
  const scene = useConsole({ POSTERN_PLACEMENT: placement });

  async function open(key: 'admin' | 'read' = 'admin'): Promise<{ page: Page; organization: TestOrganization }> {
    const organization = await scene.service.signUp();
    const { status, body } = await scene.service.call('POST', '/api/migrations', {
      key: organization.apiKey,
      body: { name: 'tables', sql: TABLES },
    });
    expect(status, JSON.stringify(body)).toBe(201);
    const reader = await scene.service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'reader', scope: 'read' } });
    const { page } = await scene.openSignedIn({
      organization: key === 'admin' ? organization : { ...organization, apiKey: reader.body.apiKey },
    });
    await goTo(page, 'schema', 'Schema');
    await page.getByRole('tree').waitFor();
    return { page, organization };
  }

  const heading = (page: Page, name: string) => page.getByRole('heading', { name, level: 2 }).waitFor();

  async function apply(page: Page): Promise<void> {
    await page.getByRole('button', { name: 'Apply …' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByText('applied', { exact: false }).first().waitFor();
  }

  it('objects are found in the tree by the keyboard, and names stay text', async () => {
    const { page } = await open();
    await page.getByRole('tree').focus();
    for (const key of ['Home', 'ArrowRight', 'ArrowRight', 'ArrowRight']) await page.keyboard.press(key);
    await page.keyboard.press('Enter');
    await heading(page, `public.${HOSTILE}`);
    expect(await page.getByRole('treeitem', { selected: true }).getAttribute('title')).toBe(HOSTILE);
    expect(await page.locator('.schema-object img').count()).toBe(0);
    await page.keyboard.press('o');
    await page.keyboard.press('Enter');
    await heading(page, 'public.orders');
    expect(await page.evaluate('location.hash')).toBe('#/schema/public.orders');
    await page.getByRole('link', { name: '→ customers.id' }).click();
    await heading(page, 'public.customers');
    await page.getByRole('region', { name: 'Referred to by' }).getByRole('link', { name: 'orders' }).click();
    await heading(page, 'public.orders');
    await page.getByLabel('Find by name').fill('mood');
    await page.getByRole('treeitem', { name: 'mood' }).click();
    await heading(page, 'public.mood');
    await page.getByLabel('Find by name').fill('twice');
    await page.getByRole('treeitem', { name: 'twice' }).click();
    await page.getByText('SELECT n * 2').waitFor();
    await keepScreenshot(page, `schema-function-${placement}`);
    expect(await seriousFindings(page)).toEqual([]);
  });

  it('a table is copied as SQL that makes it again', async () => {
    const { page, organization } = await open();
    await page.getByRole('treeitem', { name: 'orders' }).click();
    await page.getByRole('tab', { name: 'SQL' }).click();
    await page.getByRole('button', { name: 'Copy' }).click();
    const copied = async () => String(await page.evaluate('navigator.clipboard.readText()'));
    await expect.poll(copied).toContain('CREATE INDEX orders_customer ON public.orders USING btree (customer);');
    const sql = await copied();
    await scene.service.query(organization, 'DROP TABLE orders');
    const { status, body } = await scene.service.call('POST', '/api/migrations', {
      key: organization.apiKey,
      body: { name: 'again', sql },
    });
    expect(status, JSON.stringify(body)).toBe(201);
  });

  it('dialogs write migrations, which change the table when they are applied', async () => {
    const { page } = await open();
    await page.getByRole('treeitem', { name: HOSTILE }).click();
    await page.getByRole('button', { name: 'Column …' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Column').fill('a "b"');
    await dialog.getByLabel('Type').fill('text');
    expect(await dialog.locator('.preview code').textContent()).toBe(`ALTER TABLE public.${NAME} ADD COLUMN "a ""b""" text;`);
    expect(await seriousFindings(page)).toEqual([]);
    await keepScreenshot(page, `schema-add-column-${placement}`);
    await dialog.getByRole('button', { name: 'To the migration' }).click();
    await page.getByRole('button', { name: 'Dry run, there and back' }).click();
    await page.getByText('rolled back', { exact: false }).first().waitFor();
    await apply(page);
    await goTo(page, 'schema', 'Schema');
    await page.getByRole('treeitem', { name: HOSTILE }).click();
    await page.getByRole('region', { name: 'Columns' }).getByText('a "b"').waitFor();
    await page.getByRole('button', { name: 'Index …' }).click();
    await dialog.getByRole('checkbox', { name: 'a "b"' }).check();
    await dialog.getByLabel('Name').fill('by "b"');
    await dialog.getByRole('button', { name: 'To the migration' }).click();
    await apply(page);
    await goTo(page, 'schema', 'Schema');
    await page.getByRole('treeitem', { name: HOSTILE }).click();
    await page.getByRole('region', { name: 'Indexes' }).getByText('by "b"').waitFor();
  });

  it('the diagram moves and scales by the keyboard, and a click opens a table', async () => {
    const { page } = await open();
    await page.getByRole('button', { name: 'Diagram' }).click();
    const group = page.locator('.canvas svg > g');
    await group.locator('.box').first().waitFor();
    expect(await group.locator('.box').count()).toBe(3);
    await page.getByRole('group', { name: 'Diagram' }).focus();
    await expect.poll(() => group.getAttribute('transform')).not.toBeNull();
    const before = await group.getAttribute('transform');
    await page.keyboard.press('-');
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => group.getAttribute('transform')).not.toBe(before);
    await page.keyboard.press('0');
    await expect.poll(() => group.getAttribute('transform')).toBe(before);
    await page.getByText('The relations as a list').click();
    await page.getByText('orders (customer) refers to customers (id), many to one').waitFor();
    await keepScreenshot(page, `schema-diagram-${placement}`);
    expect(await seriousFindings(page)).toEqual([]);
    await group.locator('.box', { hasText: 'orders' }).click();
    await heading(page, 'public.orders');
  });

  it('a read key sees what it may, and is offered no change', async () => {
    const { page } = await open('read');
    await page.getByRole('treeitem', { name: 'orders' }).click();
    await heading(page, 'public.orders');
    expect(await page.getByRole('button', { name: /…$/ }).count()).toBe(0);
    expect(await page.getByRole('button', { name: /^(Change|Drop)/ }).count()).toBe(0);
  });
});
