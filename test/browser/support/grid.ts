import type { Locator, Page } from 'playwright-core';
import { eventually } from '../../support/eventually.ts';

const NOTHING = 'nothing was copied';

export function resultGrid(page: Page, label = 'Result'): Locator {
  return page.getByRole('grid', { name: label, exact: true });
}

/** The rows that are in view, as texts. */
export async function cellTexts(page: Page, label = 'Result'): Promise<readonly (readonly string[])[]> {
  const grid = resultGrid(page, label);
  await grid.waitFor();
  return grid.evaluate((element) =>
    [...element.querySelectorAll('[role=row]:has([role=gridcell])')].map((row) =>
      [...row.querySelectorAll('[role=gridcell]')].map(({ textContent }) => textContent ?? ''),
    ),
  );
}

/** A cell in view, both counted from 0. */
export function cell(page: Page, row: number, column: number, label = 'Result'): Locator {
  return resultGrid(page, label).locator(`[data-row="${row}"] [data-column="${column}"]`);
}

/** What the clipboard has after Ctrl-C in this cell. */
export async function copied(page: Page, row: number, column: number, label = 'Result'): Promise<string> {
  const said = page.getByRole('status').getByText(/^Copied/);
  await page.evaluate((nothing) => navigator.clipboard.writeText(nothing), NOTHING);
  await cell(page, row, column, label).click();
  await page.keyboard.press('Control+c');
  await said.last().waitFor();
  // It may have been said of an earlier copy.
  const text = () => page.evaluate(() => navigator.clipboard.readText());
  await eventually('something is copied', async () => (await text()) !== NOTHING);
  return text();
}
