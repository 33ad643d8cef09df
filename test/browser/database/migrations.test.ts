import { expect, it } from 'vitest';
import { goTo, useConsole } from '../support/console.ts';
import { write } from '../support/editor.ts';

const scene = useConsole();

/** The error is in the seventh line. */
const WRONG = `create table a (id int primary key);
create table b (id int primary key);
create table c (id int primary key);
create table d (
  id int primary key
);
create table e (id integerr);
create table f (id int primary key);`;

it('an error in line 7 is shown there; a dry run leaves nothing; what is applied again was already applied', async () => {
  scene.allow(/status of 400|status of 422/);
  const { page, organization } = await scene.openSignedIn();
  const tables = async () => {
    const { body } = await scene.service.query(
      organization,
      `select relname from pg_class where relkind = 'r' and relname in ('a', 'e', 'f')`,
    );
    return body.rows.length;
  };
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('tables');
  await write(page, 'SQL', WRONG);
  await page.getByRole('button', { name: 'Dry run' }).click();
  await page.getByText('Line 7 of the SQL').waitFor();
  expect(await page.locator('.migration-outcome pre').innerText()).toMatch(/^> 7 │ create table e \(id integerr\);$/m);
  expect(await page.getByRole('alert').innerText()).toContain('integerr');
  await expect.poll(() => page.locator('.cm-errorLine').allInnerTexts()).toEqual(['create table e (id integerr);']);
  await expect.poll(() => page.locator('.cm-error').allInnerTexts()).toEqual(['integerr']);

  await write(page, 'SQL', WRONG.replace('integerr', 'integer'));
  await page.getByRole('button', { name: 'Dry run' }).click();
  await page.getByText('The dry run went through: 6 statements').waitFor();
  expect(await tables()).toBe(0);

  for (const said of ['“tables” is applied: 6 statements', '“tables” was already applied.']) {
    await page.getByRole('button', { name: 'Apply …' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click();
    await page.getByText(said).waitFor();
    expect(await tables()).toBe(3);
  }
  await goTo(page, 'migrations', 'Migrations');
  await page.getByRole('row', { name: 'tables applied' }).click();
  await page.getByRole('dialog', { name: 'tables' }).getByText('create table e (id integer);').waitFor();
});

it('what destroys data is named before it is applied', async () => {
  const { page, organization } = await scene.openSignedIn();
  await scene.service.query(organization, 'create table orders (id int primary key)');
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('drop');
  await write(page, 'SQL', 'select 1;\ndrop table orders;');
  expect(await page.locator('.notice.warning').innerText()).toMatch(/^line 2\s+DROP TABLE deletes the table with all its rows$/);
  await page.getByRole('button', { name: 'Apply …' }).click();
  expect(await page.getByRole('dialog').locator('.notice.warning').innerText()).toMatch(
    /^line 2\s+DROP TABLE deletes the table with all its rows$/,
  );
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  expect((await scene.service.query(organization, 'select from orders')).status).toBe(200);
});

it('a migration is rolled back, after a dry run, and not before those that came later', async () => {
  scene.allow(/status of 409/);
  const { page, organization } = await scene.openSignedIn();
  const { service } = scene;
  const apply = (name: string) =>
    service.call('POST', '/api/migrations', {
      key: organization.apiKey,
      body: { name, sql: `create table ${name} ()`, rollbackSql: `drop table ${name}` },
    });
  await apply('first');
  await apply('second');
  await goTo(page, 'migrations', 'Migrations');
  await page.getByRole('row', { name: 'first applied' }).click();
  await page.getByRole('button', { name: 'Roll back …' }).click();
  const asked = page.getByRole('dialog', { name: 'Roll back “first”?' });
  await asked.getByText('drop table first').waitFor();
  await asked.getByRole('button', { name: 'Roll back', exact: true }).click();
  await asked.getByText(/“?"?second"?”? was applied after it/).waitFor();
  await asked.getByRole('button', { name: 'Dry run' }).click();
  await asked.getByText('The dry run went through. Nothing is kept.').waitFor();
  expect((await service.query(organization, 'select from first')).status).toBe(200);
  await asked.getByRole('button', { name: 'Roll back all the same' }).click();
  await page.getByRole('row', { name: 'first rolled back' }).waitFor();
  expect((await service.query(organization, 'select from first')).status).toBe(400);
});
