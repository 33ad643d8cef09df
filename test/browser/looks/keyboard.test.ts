import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { goTo, useConsole } from '../support/console.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const scene = useConsole();

it('somebody enters, goes to a screen, opens a dialog and leaves it, with nothing but keys', async () => {
  const { apiKey } = await scene.service.signUp();
  const page = await scene.open();
  await tabTo(page, 'API key');
  await page.keyboard.type(apiKey);
  await page.keyboard.press('Enter');
  await page.getByRole('navigation', { name: 'Screens' }).waitFor();
  await command(page, 'keys');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  await tabTo(page, 'New key');
  await page.keyboard.press('Enter');
  await tabTo(page, 'Name');
  await page.keyboard.type('by hand');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  expect(await focused(page)).toBe('New key');
  await command(page, 'sign out');
  await page.keyboard.press('Enter');
  await page.getByLabel('API key').waitFor();
});

it.each(SCREEN_NAMES)('on the screen %s every control is reached by Tab, and the focus is seen and never caught', async (path, title) => {
  const { page } = await scene.openSignedIn();
  await goTo(page, path, title);
  // The rows of sessions that have ended take what was reached in them along, and others come, as long as they are asked for.
  if (path === 'sessions') await page.getByRole('button', { name: 'Pause', exact: true }).click();
  const seen: string[] = [];
  await page.locator('#main').focus();
  for (let step = 0; step < STEPS_MAX; step += 1) {
    // In the editor Tab indents, unless Escape comes before it.
    if (await page.evaluate(() => document.activeElement?.shadowRoot != null)) await page.keyboard.press('Escape');
    await page.keyboard.press('Tab');
    const at = await page.evaluate(describeFocus);
    // The browser's own controls come after the last of the page.
    if (at === undefined) break;
    expect(at.isVisible, `${at.name} is visible when it has the focus`).toBe(true);
    seen.push(at.id);
  }
  expect(seen.length).toBeLessThan(STEPS_MAX);
  const missed = await page.evaluate(controlsIn, seen);
  expect(missed).toEqual([]);
});

const STEPS_MAX = 300;

async function command(page: Page, text: string): Promise<void> {
  await page.keyboard.press('Control+k');
  await page.locator('[role=combobox]:focus').waitFor();
  await page.keyboard.type(text);
}

async function tabTo(page: Page, name: string): Promise<void> {
  for (let step = 0; step < STEPS_MAX; step += 1) {
    await page.keyboard.press('Tab');
    if ((await focused(page)) === name) return;
  }
  throw new Error(`Tab does not reach ${name}`);
}

/** What the control with the focus is called. */
function focused(page: Page): Promise<string | undefined> {
  return page.evaluate(() => {
    const { activeElement } = document;
    const labels = activeElement instanceof HTMLInputElement ? activeElement.labels : null;
    return labels?.[0]?.textContent ?? activeElement?.getAttribute('aria-label') ?? activeElement?.textContent?.trim();
  });
}

/** Marks the element with the focus, inside of shadow roots too. */
function describeFocus(): { readonly id: string; readonly name: string; readonly isVisible: boolean } | undefined {
  const element = document.activeElement;
  if (!(element instanceof HTMLElement) || element === document.body) return undefined;
  element.dataset.reached ??= String(document.querySelectorAll('[data-reached]').length);
  return {
    id: element.dataset.reached,
    name: element.getAttribute('aria-label') ?? element.textContent ?? '',
    isVisible: element.checkVisibility({ visibilityProperty: true }) && element.getBoundingClientRect().width > 0,
  };
}

/** The controls of the screen that Tab has not reached; of a group with one tab stop only that one counts. */
function controlsIn(): string[] {
  const controls = [...document.querySelectorAll<HTMLElement>('#main :is(a[href], button, input, select, textarea, [tabindex])')];
  return controls
    .filter((control) => control.tabIndex >= 0 && control.dataset.reached === undefined && control.checkVisibility())
    .filter((control) => !(control as HTMLButtonElement).disabled)
    .map((control) => control.outerHTML.slice(0, 120));
}
