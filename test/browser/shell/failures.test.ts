import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { goTo, originOf, useConsole } from '../support/console.ts';
import { write, written } from '../support/editor.ts';
import { type Fault, type Gateway, openGateway } from '../support/gateway.ts';
import { cell } from '../support/grid.ts';

const scene = useConsole();
let gateway: Gateway;
beforeAll(async () => {
  gateway = await openGateway(originOf(scene.service));
});
afterAll(() => gateway.close());

const PROBLEM = { title: 'Too many requests', detail: 'too many requests of this organization are in progress', retryable: true };
const problem = (status: number, code: string) => ({
  kind: 'answer' as const,
  status,
  headers: { 'content-type': 'application/problem+json', 'retry-after': '1' },
  body: JSON.stringify({ ...PROBLEM, status, code }),
});

/** What happens to a request, and the sentence that tells of it. */
const FAULTS: readonly (readonly [name: string, fault: Fault, sentence: RegExp])[] = [
  ['429', problem(429, 'too_many_requests'), /^Too many requests of this organization are in progress\.$/],
  ['503', problem(503, 'draining'), /^Too many requests .*\.$/],
  ['503 of a proxy', { kind: 'answer', status: 503, body: '<h1>Service Unavailable</h1>' }, /^The server answered 503.*\.$/],
  ['504 of a proxy', { kind: 'answer', status: 504, body: '<h1>Gateway Timeout</h1>' }, /^The server answered 504.*\.$/],
  ['a connection that ends', { kind: 'refuse' }, /^Postern cannot be reached\.$/],
  ['a reply that breaks off', { kind: 'break', afterBytes: 20 }, /^The reply broke off before its end\.$/],
];

it('what goes wrong while a screen is loaded is told in a sentence, with a way to try again', async () => {
  scene.allow(/Failed to load resource/);
  const { page } = await scene.openSignedIn({ origin: gateway.origin });
  const notice = page.getByRole('alert');
  for (const [name, fault, sentence] of FAULTS) {
    gateway.fault = (method, path) => (path === '/api/keys' && method === 'GET' ? fault : undefined);
    await goTo(page, 'keys', 'Keys');
    await notice.waitFor();
    expect(await notice.locator('.notice-title').innerText(), name).toMatch(sentence);
    gateway.fault = () => undefined;
    await notice.getByRole('button', { name: 'Retry' }).click();
    await page.getByText('this page', { exact: true }).waitFor();
    expect(await notice.count(), name).toBe(0);
    await goTo(page, 'connect', 'Connect');
  }
});

it('a screen whose code cannot be loaded says so, also after an upgrade, and comes when it can', async () => {
  scene.allow(/Failed to load resource/);
  const { page } = await scene.openSignedIn({ origin: gateway.origin });
  const show = (hash: string) => page.evaluate((to) => location.assign(to), hash);
  for (const fault of [{ kind: 'refuse' }, { kind: 'answer', status: 404, body: 'there is nothing' }] as const) {
    gateway.fault = (_method, path) => (path.includes('/assets/keys-screen') ? fault : undefined);
    await show('#/keys');
    const notice = page.getByRole('alert');
    await notice.getByText('This part of the console could not be loaded.', { exact: true }).waitFor();
    await notice.getByText('reload the page').waitFor();
    await show('#/connect');
    await page.getByRole('heading', { level: 1, name: 'Connect', exact: true }).waitFor();
  }
  gateway.fault = (_method, path) => (path.includes('/assets/keys-screen') ? { kind: 'refuse' } : undefined);
  await show('#/keys');
  const retry = page.getByRole('alert').getByRole('button', { name: 'Retry' });
  await retry.waitFor();
  gateway.fault = () => undefined;
  await retry.click();
  await page.getByText('this page', { exact: true }).waitFor();
});

it('what goes wrong while something is sent loses nothing of what was typed', async () => {
  scene.allow(/Failed to load resource/);
  const { page } = await scene.openSignedIn({ origin: gateway.origin });
  const notice = page.getByRole('alert');
  for (const [name, fault] of FAULTS) {
    const sql = `${SQL} -- ${name}`;
    await prepare(page, sql);
    gateway.fault = (_method, path) => (path === '/api/migrations' ? fault : undefined);
    await page.getByRole('button', { name: 'Dry run' }).click();
    await notice.waitFor();
    gateway.fault = () => undefined;
    expect(await written(page, 'SQL')).toBe(sql);
    await goTo(page, 'connect', 'Connect');
    await goTo(page, 'migrations/new', 'New migration');
    expect(await written(page, 'SQL')).toBe(sql);
    await page.getByRole('button', { name: 'Dry run' }).click();
    await page.getByText('The dry run went through').waitFor();
    expect(await notice.count(), name).toBe(0);
  }
});

it('what goes wrong with a query is told in a sentence, and its text stays', async () => {
  scene.allow(/Failed to load resource/);
  const { page } = await scene.openSignedIn({ origin: gateway.origin });
  await goTo(page, 'sql', 'SQL');
  const notice = page.getByRole('alert');
  for (const [name, fault, sentence] of FAULTS) {
    const sql = `select n, repeat('x', 100) from generate_series(1, 2000) n -- ${name}`;
    await write(page, 'SQL', sql);
    gateway.fault = (_method, path) => (path === '/api/query' ? fault : undefined);
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await notice.waitFor();
    gateway.fault = () => undefined;
    expect(await notice.locator('.notice-title').innerText(), name).toMatch(
      name.startsWith('a connection') ? /^Postern cannot be reached\./ : sentence,
    );
    expect(await written(page, 'SQL')).toBe(sql);
    await notice.getByRole('button', { name: 'Retry' }).click();
    await page.locator('.sql-status').getByText('2,000 rows').waitFor();
    expect(await notice.count(), name).toBe(0);
  }
});

it('where a result breaks off, the rows that had come stay', async () => {
  scene.allow(/Failed to load resource/);
  const { page } = await scene.openSignedIn({ origin: gateway.origin });
  await goTo(page, 'sql', 'SQL');
  const sql = "select n, repeat('x', 1000), case when n > 500 then pg_sleep(60) end from generate_series(1, 600) n";
  await write(page, 'SQL', sql);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await cell(page, 5, 0).waitFor();
  gateway.breakOff();
  await page.getByRole('alert').getByText('The reply broke off before its end.').waitFor();
  await page.getByText('The rows that had come before are shown.').waitFor();
  expect(await cell(page, 5, 0).textContent()).toBe('6');
  expect(await written(page, 'SQL')).toBe(sql);
});

const OFFLINE_MS = 5_000;

it('five seconds without a network lose nothing, and the same goes on afterwards', async () => {
  scene.allow(/Failed to load resource: net::ERR_INTERNET_DISCONNECTED/);
  const { page } = await scene.openSignedIn();
  await prepare(page, SQL);
  await page.context().setOffline(true);
  const since = performance.now();
  const notice = page.getByRole('alert');
  await page.getByRole('button', { name: 'Dry run' }).click();
  await notice.getByText('Postern cannot be reached.').waitFor();
  // A screen whose code has not been loaded yet.
  await page.evaluate(() => {
    location.hash = '#/audit';
  });
  await notice.getByRole('button', { name: 'Retry' }).waitFor();
  await page.waitForTimeout(OFFLINE_MS - (performance.now() - since));
  await page.context().setOffline(false);
  await notice.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('region', { name: 'Audit log' }).waitFor();
  await goTo(page, 'migrations/new', 'New migration');
  expect(await written(page, 'SQL')).toBe(SQL);
  await notice.getByRole('button', { name: 'Retry' }).click();
  await page.getByText('The dry run went through').waitFor();
});

const SQL = 'create table orders (id int primary key);';

async function prepare(page: Page, sql: string): Promise<void> {
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('orders');
  await write(page, 'SQL', sql);
}
