import { expect, it } from 'vitest';
import { goTo, useConsole } from '../support/console.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const scene = useConsole();

it('a key is made, shown once, rotated and revoked', async () => {
  const { page } = await scene.openSignedIn();
  await goTo(page, 'keys', 'Keys');
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByLabel('Name').fill('nightly job');
  await page.getByLabel('Scope').selectOption('read');
  await page.getByRole('button', { name: 'Make the key' }).click();
  const shown = page.getByRole('dialog', { name: 'The key “nightly job”' }).getByText(/^pst_/);
  const first = await shown.innerText();
  await page.getByLabel('I have kept the key').check();
  await page.getByRole('button', { name: 'Done' }).click();
  expect(await scopeOf(first)).toBe('read');

  await page.getByRole('button', { name: 'Rotate nightly job' }).click();
  await page.getByLabel(/ ends$/).selectOption('0');
  await page.getByRole('button', { name: 'Rotate', exact: true }).click();
  const second = await shown.innerText();
  expect(await scopeOf(first)).toBeUndefined();
  await page.getByLabel('I have kept the key').check();
  await page.getByRole('button', { name: 'Done' }).click();
  expect(await scopeOf(second)).toBe('read');

  await page.getByRole('button', { name: 'Revoke nightly job' }).first().click();
  await page.getByRole('button', { name: 'Revoke the key' }).click();
  await page.getByText('“nightly job” is revoked.').waitFor();
  expect(await scopeOf(second)).toBeUndefined();
});

async function scopeOf(key: string): Promise<string | undefined> {
  return (await scene.service.call('GET', '/api/auth/me', { key })).body.key?.scope;
}

it.each(['read', 'write'])('with a %s key no screen fails: it shows what the key may see, or says why not', async (scope) => {
  const organization = await scene.service.signUp();
  const { body } = await scene.service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: scope, scope } });
  const { page } = await scene.openSignedIn({ organization: { ...organization, apiKey: body.apiKey } });
  for (const [path, title] of SCREEN_NAMES) {
    await goTo(page, path, title);
    expect([path, await page.locator('.notice.bad').allInnerTexts()]).toEqual([path, []]);
  }
});
