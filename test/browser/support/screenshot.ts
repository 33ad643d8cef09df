import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';

const FOLDER = fileURLToPath(new URL('../../../dist/screenshots/', import.meta.url));

/** Keeps what the page looks like as `dist/screenshots/<name>.png`, for whoever wants to see it. */
export async function keepScreenshot(page: Page, name: string): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  await page.screenshot({ path: `${FOLDER}${name}.png`, animations: 'disabled' });
}
