import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import type { TestOrganization } from '../../support/service.ts';
import { goTo, useConsole } from '../support/console.ts';
import { editorOf, write } from '../support/editor.ts';
import { cell, cellTexts, copied, resultGrid } from '../support/grid.ts';

const scene = useConsole();

/** Name, type, and the value as PostgreSQL writes it; null: NULL. */
const VALUES: readonly (readonly [name: string, type: string, text: string | null])[] = [
  ['large', 'int8', '9223372036854775807'],
  ['exact', 'numeric', '123456789012345678901234567890.10'],
  ['no_number', 'numeric', 'NaN'],
  ['no_float', 'float8', 'NaN'],
  ['endless', 'float8', '-Infinity'],
  ['at', 'timestamptz', '2024-01-31 12:34:56.123456+00'],
  ['local', 'timestamp', '2024-01-31 12:34:56.000001'],
  ['bytes', 'bytea', '\\xdeadbeef00ff'],
  ['nothing', 'text', null],
  ['empty', 'text', ''],
  ['spaced', 'text', ' two  spaces '],
  ['numbers', 'int8[]', '{1,NULL,9223372036854775807}'],
  ['texts', 'text[]', '{a,NULL,"NULL","","x,y"}'],
  ['document', 'jsonb', '{"a": 12345678901234567890, "b": null, "c": [1.10]}'],
  ['as_sent', 'json', '{"b":1,  "a":2,"a":3}'],
  ['span', 'interval', '1 mon 2 days 03:04:05.678901'],
  ['yes', 'bool', 'true'],
];

it('values are shown and copied as PostgreSQL writes them', async () => {
  const { page } = await openTable();
  await goTo(page, 'sql', 'SQL');
  await write(page, 'SQL', 'select * from kept');
  await (await editorOf(page, 'SQL')).press('Control+Enter');
  await resultGrid(page).waitFor();
  for (const [index, [name, , text]] of VALUES.entries()) {
    // Columns that are not in view are not in the document.
    await showColumn(page, index + 1);
    const shown = await cell(page, 0, index + 1).textContent();
    expect([name, shown?.replaceAll(' ', ' ')]).toEqual([name, text ?? 'NULL']);
    expect([name, await copied(page, 0, index + 1)]).toEqual([name, text ?? '']);
  }
});

it('values that are pasted into a new row are the same in the database', async () => {
  const { page, organization } = await openTable();
  await goTo(page, 'tables/public.kept', 'kept');
  await page.getByRole('button', { name: 'Insert row' }).click();
  const label = 'Rows of kept';
  await cell(page, 0, 0, label).click();
  await page.keyboard.type('2');
  await page.keyboard.press('Enter');
  for (const [index, [, , text]] of VALUES.entries()) {
    await showColumn(page, index + 1, label);
    if (text !== null && text !== '') await copied(page, 1, index + 1, label);
    await cell(page, 0, index + 1, label).click();
    if (text === null) await page.keyboard.press('Delete');
    else if (text === '') await page.keyboard.press('Backspace');
    else await page.keyboard.press('Control+v');
    if (text !== null) await page.keyboard.press('Enter');
  }
  await page.getByRole('button', { name: 'Review and save' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: 1 row new.').waitFor();
  await isTwice(organization);
});

it('a row that is copied as INSERT makes the same row again', async () => {
  const { page, organization } = await openTable();
  await goTo(page, 'tables/public.kept', 'kept');
  await cell(page, 0, 0, 'Rows of kept').click();
  await page.keyboard.press('Shift+F10');
  await page.getByRole('menuitem', { name: 'Copy row as INSERT' }).click();
  await page.getByText('Copied one row.').waitFor();
  const insert = await page.evaluate(() => navigator.clipboard.readText());
  const { status } = await scene.service.query(organization, insert.replace("('1'", "('2'"));
  expect(status).toBe(200);
  await isTwice(organization);
});

async function openTable(): Promise<{ page: Page; organization: TestOrganization }> {
  const organization = await scene.service.signUp();
  const definition = VALUES.map(([name, type]) => `${name} ${type}`).join(', ');
  await scene.service.query(organization, `create table kept (id int primary key, ${definition})`);
  const places = VALUES.map(([, type], index) => `$${index + 1}::text::${type}`).join(', ');
  const texts = VALUES.map(([, , text]) => text);
  const { status } = await scene.service.query(organization, `insert into kept values (1, ${places})`, texts);
  expect(status).toBe(200);
  const { page } = await scene.openSignedIn({ organization, width: 1_600 });
  return { page, organization };
}

/** Every value of both rows has the same text. */
async function isTwice(organization: TestOrganization): Promise<void> {
  const columns = VALUES.map(([name]) => `${name}::text`).join(', ');
  const { body } = await scene.service.query(organization, `select ${columns} from kept order by id`);
  const expected = Object.fromEntries(VALUES.map(([name, , text]) => [name, text]));
  expect(body.rows).toEqual([expected, expected]);
}

/** Brings a column into view by the keyboard. */
async function showColumn(page: Page, column: number, label = 'Result'): Promise<void> {
  const grid = resultGrid(page, label);
  await cellTexts(page, label);
  await grid.focus();
  await page.keyboard.press('Control+Home');
  for (let step = 0; step < column; step += 1) await page.keyboard.press('ArrowRight');
  await cell(page, 0, column, label).waitFor();
}
