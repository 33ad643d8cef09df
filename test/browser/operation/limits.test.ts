import { expect, it } from 'vitest';
import { NO_LIMITS } from '../../../src/catalog/limits.ts';
import { goTo, useConsole } from '../support/console.ts';

const scene = useConsole();
const ORIGIN = { surface: 'admin', sourceIp: '127.0.0.1' } as const;

it('limits that an operator has set are among the figures of Usage, and no others', async () => {
  const { page, organization } = await scene.openSignedIn();
  await goTo(page, 'usage', 'Usage');
  const figures = page.locator('.usage-figures');
  await figures.getByText('half a minute old at most').waitFor();
  expect(await figures.innerText()).not.toContain('HTTP requests in a second');

  const { operator } = scene.service.service;
  await operator.setLimits(organization.id, { diskBytes: 2 ** 30, sessions: 7, requestsPerSecond: 2_000, statementMs: 5_000 }, ORIGIN);
  await page.getByRole('button', { name: 'Load again' }).click();
  await figures.getByText('at most 2,000').waitFor();
  const figure = (term: string) => figures.locator('div', { has: page.getByText(term, { exact: true }) });
  expect(await figure('Database').innerText()).toContain(' of 1.1 GB');
  expect(await figure('Connections now').innerText()).toContain('0 of 7');
  expect(await figure('HTTP requests now').innerText()).toContain('of 7');
  expect(await figure('Time of a statement').innerText()).toContain('at most 5.0 s');
  await operator.setLimits(organization.id, NO_LIMITS, ORIGIN);
});
