import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { startTestService } from '../../support/service.ts';
import { enterKey, goTo, originOf, useConsole } from '../support/console.ts';
import { pressCopy } from '../support/copy-button.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const KEYS_MAX = 100;

const scene = useConsole();

it('an organization signs up, is shown its key once, and enters with it', async () => {
  const page = await scene.open();
  await page.getByRole('tab', { name: 'Sign up' }).click();
  await page.getByLabel('Name of the organization').fill('Initech');
  await page.getByLabel('E-mail address').fill('a@initech.test');
  await page.getByRole('button', { name: 'Sign up' }).click();
  const apiKey = await page.getByText(/^pst_/).innerText();
  expect(await page.getByRole('button', { name: 'Open the console' }).isDisabled()).toBe(true);
  await pressCopy(page, page.getByRole('button', { name: 'Copy' }));
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(apiKey);
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download as .env' }).click();
  const file = await readFile(await (await download).path(), 'utf8');
  expect(file).toContain(`API_KEY=${apiKey}\n`);
  expect(file).toMatch(/^DATABASE_URL=postgres:\/\/\w+:pst_\w+@127\.0\.0\.1:\d+\/\w+\?sslmode=disable$/m);

  await page.getByLabel('I have kept the key').check();
  await page.getByRole('button', { name: 'Open the console' }).click();
  await page.getByRole('navigation', { name: 'Screens' }).getByText('Initech').waitFor();

  await page.reload();
  await page.getByLabel('API key').waitFor();
  expect(await page.getByText(apiKey).count()).toBe(0);
  await enterKey(page, apiKey);
  await page.getByRole('navigation', { name: 'Screens' }).getByText('Initech').waitFor();
});

it('a wrong key says so, and can be corrected', async () => {
  scene.allow(/status of 401/);
  const { apiKey } = await scene.service.signUp();
  const page = await scene.open();
  await page.getByLabel('API key').fill(`${apiKey.slice(0, -4)}AAAA`);
  await page.getByRole('button', { name: 'Enter' }).click();
  await page.locator('.field .bad').waitFor();
  expect(await page.locator('.field .bad').innerText()).toMatch(/key/i);
  await enterKey(page, apiKey);
});

it('the key is nowhere but in headers, on no screen, and signing out forgets and revokes that of the page', async () => {
  const organization = await scene.service.signUp();
  const page = await scene.open();
  const keys = new Set([organization.apiKey]);
  const urls: string[] = [];
  page.on('request', (request) => {
    urls.push(request.url());
    const key = request.headers().authorization?.replace('Bearer ', '');
    if (key !== undefined) keys.add(key);
  });
  await enterKey(page, organization.apiKey);
  for (const [path, title] of SCREEN_NAMES) {
    await goTo(page, path, title);
    expect(holding(await traces(page), keys), path).toEqual([]);
  }
  expect(keys.size).toBe(2);
  expect(urls.filter((url) => [...keys].some((key) => url.includes(key)))).toEqual([]);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('API key').waitFor();
  expect(holding(await traces(page), keys)).toEqual([]);
  const [, ownKey] = [...keys];
  expect((await scene.service.call('GET', '/api/auth/me', { key: ownKey ?? '' })).status).toBe(401);
  expect((await scene.service.call('GET', '/api/auth/me', { key: organization.apiKey })).status).toBe(200);
});

it('who stays signed in goes on after a reload, with a key of the page in sessionStorage that signing out wipes', async () => {
  const { page, organization } = await scene.openSignedIn({ staysSignedIn: true });
  await goTo(page, 'keys', 'Keys');
  await page.reload();
  await page.getByText('this page', { exact: true }).waitFor();
  const kept = await traces(page);
  expect(kept.sessionStorage).toContain('pst_');
  expect(kept.sessionStorage).not.toContain(organization.apiKey);
  expect(kept.localStorage).toBe('{}');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('API key').waitFor();
  expect(await traces(page)).toMatchObject({ sessionStorage: '{}', localStorage: '{}' });
});

it('the key of the page works from where the entered one does, and no longer', async () => {
  const { apiKey } = await scene.service.signUp();
  const limits = { networks: ['127.0.0.0/8'], expiresAt: '2100-01-01T00:00:00.000Z' };
  const soon = { ...limits, expiresAt: new Date(Date.now() + 3_600_000).toISOString() };
  for (const body of [limits, soon]) {
    const { body: entered } = await scene.service.call('POST', '/api/keys', {
      key: apiKey,
      body: { name: 'limited', scope: 'admin', ...body },
    });
    await enterKey(await scene.open(), entered.apiKey);
    const own = (await ownKeys(apiKey)).find(({ createdBy }) => createdBy === entered.keyId);
    expect(own?.networks).toEqual(body.networks);
    expect(Date.parse(own?.expiresAt ?? '')).toBeLessThanOrEqual(Math.min(Date.parse(body.expiresAt), Date.now() + 12 * 3_600_000));
  }
});

it('leaving the page revokes its key, unless somebody stays signed in', async () => {
  const organization = await scene.service.signUp();
  const { page } = await scene.openSignedIn({ organization });
  expect(await ownKeys(organization.apiKey)).toHaveLength(1);
  // From within: where the browser itself takes it elsewhere, it gives a busy page half a second to say so.
  await page.evaluate(() => {
    location.href = 'about:blank';
  });
  await page.waitForURL('about:blank');
  await expect.poll(() => ownKeys(organization.apiKey)).toEqual([]);
  const { page: kept } = await scene.openSignedIn({ organization, staysSignedIn: true });
  await kept.reload();
  await kept.locator('#main').waitFor();
  expect(await ownKeys(organization.apiKey)).toHaveLength(1);
});

it('with as many keys as there may be, one enters with the key itself, which is not kept', async () => {
  scene.allow(/status of 4\d\d/);
  const { apiKey } = await scene.service.signUp();
  for (let count = 1; count < KEYS_MAX; count += 1) {
    expect((await scene.service.call('POST', '/api/keys', { key: apiKey, body: { name: `key ${count}`, scope: 'read' } })).status).toBe(
      201,
    );
  }
  const page = await scene.open();
  await enterKey(page, apiKey, true);
  await goTo(page, 'keys', 'Keys');
  await page.getByRole('button', { name: 'Revoke key 99' }).click();
  await page.getByRole('button', { name: 'Revoke the key' }).click();
  await page.getByText('“key 99” is revoked.').waitFor();
  expect((await traces(page)).sessionStorage).not.toContain('pst_');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('API key').waitFor();
  expect((await scene.service.call('GET', '/api/auth/me', { key: apiKey })).status).toBe(200);
});

it('another tab has not signed in', async () => {
  const { page } = await scene.openSignedIn({ staysSignedIn: true });
  const other = await page.context().newPage();
  await other.goto(page.url());
  await other.getByLabel('API key').waitFor();
});

it('the page is not there where POSTERN_CONSOLE is off', async () => {
  const off = await startTestService({ POSTERN_CONSOLE: 'off' });
  const page = await scene.open();
  scene.allow(/status of 404|request to another origin/);
  expect((await page.goto(`${originOf(off)}/console`))?.status()).toBe(404);
  await off.close();
});

interface OwnKey {
  readonly createdBy: string;
  readonly expiresAt: string;
  readonly networks: readonly string[] | null;
}

/** Those that pages have made for themselves. */
async function ownKeys(key: string): Promise<readonly OwnKey[]> {
  const { body } = await scene.service.call('GET', '/api/keys', { key });
  return body.keys.filter(({ name }: { readonly name: string }) => name.startsWith('console, '));
}

/** Everything that outlives a request in the browser, by where it is. */
async function traces(page: Page): Promise<Readonly<Record<string, string>>> {
  return page.evaluate(() => ({
    html: document.documentElement.outerHTML,
    address: location.href,
    history: JSON.stringify(history.state),
    title: document.title,
    localStorage: JSON.stringify({ ...localStorage }),
    sessionStorage: JSON.stringify({ ...sessionStorage }),
    cookies: document.cookie,
    name: window.name,
  }));
}

function holding(traces: Readonly<Record<string, string>>, keys: ReadonlySet<string>): string[] {
  return Object.entries(traces).flatMap(([where, text]) => ([...keys].some((key) => text.includes(key)) ? [where] : []));
}
