import type { Locator, Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { SeededRandom } from '../../support/random.ts';
import type { TestOrganization } from '../../support/service.ts';
import { enterKey, goTo, useConsole } from '../support/console.ts';
import { heapOf } from '../support/heap.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const DURATION_MS = Number(process.env.BROWSER_RANDOM_MS ?? 20_000);
const SEED = Number(process.env.BROWSER_RANDOM_SEED ?? 1);
const HEAP_GROWTH_MAX_BYTES = 50_000_000;
/** What cannot be done at once is left. */
const PATIENCE_MS = 1_000;

const KEYS = [
  ...['Escape', 'Enter', 'Tab', 'Shift+Tab', 'ArrowDown', 'ArrowUp', 'ArrowRight', 'ArrowLeft', 'Home', 'End', 'PageDown', 'PageUp'],
  ...[
    'Control+k',
    'Control+Enter',
    'Control+Shift+Enter',
    'Control+a',
    'Control+c',
    'Control+z',
    'Delete',
    'Backspace',
    'F2',
    'Shift+F10',
    ' ',
  ],
];

const TEXTS = [
  'select * from orders',
  'select n, md5(n::text), null from generate_series(1, 500) n;',
  'select 1; select 2; select $$;$$',
  'select wrong from orders',
  `update orders set customer = '<img src=x onerror=alert(1)>' where id = 3`,
  'select pg_sleep(20)',
  'insert into orders (customer) select customer from orders limit 3 returning *',
  'do $$ begin raise warning $w$careful$w$; end $$',
  "it's",
  '"',
  '1',
  '{"a": [1, null]}',
  '2025-01-31',
  '%',
  'orders',
  '\\',
  'a@b.test',
  '🙂',
];

const CONTROLS =
  ':is(a[href^="#"], button, input, select, textarea, [role=gridcell], [role=columnheader], [role=option], [role=menuitem], [tabindex], .editor-host):visible';

const scene = useConsole();

it(
  `random clicks, keys and SQL over all screens for ${DURATION_MS / 1_000} s break nothing and leave nothing in memory`,
  async () => {
    console.log(`BROWSER_RANDOM_SEED=${SEED}`);
    // Wrong SQL is refused, and what is canceled is given up.
    scene.allow(/Failed to load resource: the server responded with a status of 4\d\d/);
    const random = new SeededRandom(SEED);
    const page = await scene.open();
    await answerQuestions(page);
    await enterKey(page, (await newOrganization()).apiKey);
    for (const [path, title] of SCREEN_NAMES) await goTo(page, path, title);
    const before = await heapOf(page);
    const did: string[] = [];
    const until = performance.now() + DURATION_MS;
    // Where the machine is busy, it takes longer until enough has been done.
    while (performance.now() < until || did.length <= DURATION_MS / 5_000) {
      did.push(await act(page, random).catch(unlessLeft));
      if (!(await isUsable(page).catch(() => false))) await enterAnew(page);
      const unexpected = scene.complaints().filter((complaint) => !complaint.includes('status of 4'));
      expect(unexpected, `after ${did.slice(-20).join('\n')}`).toEqual([]);
    }
    await goTo(page, 'connect', 'Connect');
    const grown = (await heapOf(page)) - before;
    console.log(`${did.length} steps; the heap has grown by ${(grown / 1e6).toFixed(1)} MB`);
    expect(grown).toBeLessThan(HEAP_GROWTH_MAX_BYTES);
  },
  DURATION_MS + 180_000,
);

function pick<T>(random: SeededRandom, values: readonly T[]): T {
  const value = values[random.below(values.length)];
  if (value === undefined) throw new Error('there is nothing to pick');
  return value;
}

/** @returns what it was, in words */
async function act(page: Page, random: SeededRandom): Promise<string> {
  const kind = random.below(100);
  if (kind < 5) {
    const [path] = pick(random, SCREEN_NAMES);
    await page.evaluate((hash) => {
      location.hash = hash;
    }, `#/${path}`);
    return `screen ${path}`;
  }
  if (kind < 25) {
    const key = pick(random, KEYS);
    await page.keyboard.press(key);
    return `key ${key}`;
  }
  if (kind < 45) {
    const text = pick(random, TEXTS);
    await page.keyboard.insertText(text);
    return `text ${text}`;
  }
  return click(page, random);
}

async function click(page: Page, random: SeededRandom): Promise<string> {
  const open = page.locator('dialog[open]').last();
  const within: Page | Locator = (await open.count()) > 0 && random.below(10) > 0 ? open : page;
  const controls = within.locator(CONTROLS);
  const count = await controls.count();
  if (count === 0) return 'nothing to click';
  const control = controls.nth(random.below(count));
  try {
    const button = random.below(10) === 0 ? 'right' : 'left';
    const clickCount = random.below(8) === 0 ? 2 : 1;
    const name = await control.evaluate((element) => element.outerHTML.slice(0, 160), undefined, { timeout: PATIENCE_MS });
    await control.click({ timeout: PATIENCE_MS, button, clickCount });
    return `${button} ${clickCount} ${name}`;
  } catch (error) {
    return `not clicked: ${String(error).slice(0, 60)}`;
  }
}

/** What the browser asks: to leave the page although something is not saved, to choose files. */
async function answerQuestions(page: Page): Promise<void> {
  page.on('dialog', (dialog) => void dialog.accept().catch(() => undefined));
  page.on('filechooser', () => {});
  await page.addInitScript(() => {
    const showSaveFilePicker = async () => (await navigator.storage.getDirectory()).getFileHandle('saved', { create: true });
    Object.assign(window, { showSaveFilePicker });
  });
  await page.reload();
}

/** Signing out loads the page anew. */
function unlessLeft(error: unknown): string {
  if (/context was destroyed|navigat/i.test(String(error))) return 'the page was left';
  throw error;
}

/** Somebody has signed in, and has not locked the page. */
async function isUsable(page: Page): Promise<boolean> {
  for (const other of page.context().pages()) if (other !== page) await other.close();
  return page.evaluate(() => document.querySelector('#main') !== null && document.querySelector('dialog.unlock') === null);
}

/** Signed out, locked, or with a key that was revoked: another organization begins. */
async function enterAnew(page: Page): Promise<void> {
  // A reload may be on its way.
  await page.waitForLoadState();
  await page.locator('#main, main.sign-in').first().waitFor();
  if (await isUsable(page).catch(() => false)) return;
  if (await page.locator('dialog.unlock').isVisible()) {
    await page.locator('dialog.unlock').getByRole('button', { name: 'Sign out, and forget everything' }).click();
  }
  await page.locator('main.sign-in').waitFor();
  await page.getByRole('tab', { name: 'I have a key' }).click();
  await enterKey(page, (await newOrganization()).apiKey);
}

async function newOrganization(): Promise<TestOrganization> {
  const organization = await scene.service.signUp();
  const sql = 'create table orders (id serial primary key, customer text, placed timestamptz default now(), lines jsonb)';
  await scene.service.call('POST', '/api/migrations', { key: organization.apiKey, body: { name: 'orders', sql } });
  await scene.service.query(organization, "insert into orders (customer) select 'Customer ' || n from generate_series(1, 300) n");
  return organization;
}
