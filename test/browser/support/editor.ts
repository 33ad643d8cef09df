import type { Locator, Page } from 'playwright-core';

/** The SQL editor with this label, when its code has been loaded. */
export async function editorOf(page: Page, label: string): Promise<Locator> {
  const editor = page
    .locator('.cm-content')
    .and(page.getByLabel(label, { exact: true }))
    .filter({ visible: true });
  await editor.waitFor();
  return editor;
}

/** Puts the text in the place of what stands there. */
export async function write(page: Page, label: string, sql: string): Promise<void> {
  await (await editorOf(page, label)).fill(sql);
}

/** What stands in the editor; of a long text only the lines around those that are seen. */
export async function written(page: Page, label: string): Promise<string> {
  const editor = await editorOf(page, label);
  return editor.evaluate((element) => [...element.querySelectorAll('.cm-line')].map(({ textContent }) => textContent).join('\n'));
}
