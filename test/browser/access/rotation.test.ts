import { expect, it } from 'vitest';
import { goTo, settle, useConsole } from '../support/console.ts';
import { write, written } from '../support/editor.ts';

const scene = useConsole();

it('after a rotation elsewhere the next action asks for the key, and then goes on with what was typed', async () => {
  scene.allow(/status of 401/);
  const { page, organization } = await scene.openSignedIn();
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('2025-01-31-orders');
  await write(page, 'SQL', 'create table orders (id int primary key)');

  // The key that was entered is rotated, and the page's own ends too.
  const { keys } = (await scene.service.call('GET', '/api/keys', { key: organization.apiKey })).body;
  const own = keys.find(({ name }: { readonly name: string }) => name.startsWith('console, '));
  const rotated = await scene.service.call('POST', `/api/keys/${own.keyId}/rotate`, {
    key: organization.apiKey,
    body: { graceSeconds: 0 },
  });
  expect(rotated.status).toBe(200);

  await page.getByRole('button', { name: 'Dry run' }).click();
  const dialog = page.getByRole('dialog', { name: 'Key for Acme' });
  await dialog.getByText('The key is no longer valid').waitFor();
  await dialog.getByLabel('API key').fill('pst_wrong');
  await dialog.getByRole('button', { name: 'Go on' }).click();
  await dialog.locator('.field .bad').waitFor();
  await dialog.getByLabel('API key').fill(rotated.body.apiKey);
  await dialog.getByRole('button', { name: 'Go on' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByText('The dry run went through').waitFor();
  expect(await page.getByLabel('Name').inputValue()).toBe('2025-01-31-orders');
  expect(await written(page, 'SQL')).toBe('create table orders (id int primary key)');
});

it('a key of another organization does not open what a locked page shows', async () => {
  const other = await scene.service.signUp('Globex');
  const { page, organization } = await scene.openSignedIn();
  // Locking revokes the page's own key, so a schema that is still on its way would be refused.
  await page.waitForFunction(() => performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/api/schema')));
  await settle(page);
  await page.getByRole('button', { name: 'Lock' }).click();
  const dialog = page.getByRole('dialog', { name: 'Key for Acme' });
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await dialog.getByLabel('API key').fill(other.apiKey);
  await dialog.getByRole('button', { name: 'Go on' }).click();
  await dialog.getByText('another organization, Globex').waitFor();
  await dialog.getByLabel('API key').fill(organization.apiKey);
  await dialog.getByRole('button', { name: 'Go on' }).click();
  await dialog.waitFor({ state: 'detached' });
  await settle(page);
});
