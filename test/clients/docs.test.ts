import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BrowserPage, openChromium } from '../support/chromium.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
let page: BrowserPage;
let origin: string;
beforeAll(async () => {
  service = await startTestService();
  origin = `http://127.0.0.1:${service.service.httpPort}`;
  page = await openChromium();
});
afterAll(async () => {
  await page.close();
  await service.close();
});

const INTERPRETERS = {
  curl: ['bash', '-c'],
  fetch: ['node', '--input-type=module', '-e'],
  Python: ['python3', '-c'],
  psql: ['bash', '-c'],
} as const;

const PAGES = ['/docs', '/docs/start', '/docs/http', '/docs/wire', '/docs/organizations', '/docs/operating', '/docs/benchmarks'];

/** The least contrast of any text with what is behind it. @see https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio */
const LEAST_CONTRAST = `(() => {
  const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')].filter((element) => element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== ''))
    .map((element) => {
      const [a, b] = [luminance(channels(getComputedStyle(element).color)), luminance(behind(element))].sort((one, other) => other - one);
      return (a + 0.05) / (b + 0.05);
    }).reduce((least, ratio) => Math.min(least, ratio), 21);
})()`;

describe('in a browser, the documentation', () => {
  it.each(['light', 'dark'] as const)(
    'can be read in the %s theme on a screen of 390 pixels, without scrolling sideways',
    async (theme) => {
      await page.look(390, theme);
      for (const path of PAGES) {
        await page.open(origin + path);
        const seen = await page.evaluate(
          `({ width: document.documentElement.scrollWidth, menu: document.querySelector('.menu details').open, title: document.querySelector('h1').innerText !== '' })`,
        );
        expect([path, seen]).toEqual([path, { width: 390, menu: false, title: true }]);
        expect(await page.evaluate(LEAST_CONTRAST)).toBeGreaterThanOrEqual(4.5);
      }
    },
  );

  it('names the host that served it, shows one language at a time, and remembers which', async () => {
    await page.look(1280, 'light');
    await page.open(`${origin}/docs`);
    const shown = `[...document.querySelectorAll('#query .sample')].filter((one) => one.checkVisibility()).map((one) => one.innerText)`;
    const [curl] = (await page.evaluate(shown)) as string[];
    expect(curl).toContain(`curl -X POST ${origin}/api/query`);
    expect(await page.evaluate(`document.body.innerText.includes('127.0.0.1:8080')`)).toBe(false);
    await page.evaluate(`[...document.querySelectorAll('#query [role=tab]')].find((tab) => tab.innerText === 'psql').click()`);
    await page.open(`${origin}/docs`);
    expect(await page.evaluate(shown)).toEqual([expect.stringContaining(`psql -h 127.0.0.1 -p ${service.wirePort} -U $ORG $ORG`)]);
    expect(await page.evaluate(`document.querySelector('#whoAmI [role=tab][aria-selected=true]').innerText`)).toBe('curl');
  });

  it('shows what is looked for', async () => {
    await page.open(`${origin}/docs`);
    await page.evaluate(`document.querySelector('input[type=search]').focus()`);
    const visible = `[...document.querySelectorAll('main [data-section]')].filter((one) => one.checkVisibility()).map(({ id }) => id)`;
    await page.type('nowait lock');
    expect(await page.evaluate(visible)).toEqual(['error-lock_not_available']);
  });

  it('runs calls with a key that only this tab keeps', async () => {
    await page.open(`${origin}/docs`);
    const run = async (id: string, body?: object) => {
      await page.evaluate(`(() => {
        const box = document.querySelector('#${id} .run');
        box.open = true;
        const body = ${JSON.stringify(body === undefined ? null : JSON.stringify(body))};
        if (body !== null) box.querySelector('textarea').value = body;
        box.querySelector('[role=status]').textContent = '';
        box.querySelector('button').click();
      })()`);
      const status = `document.querySelector('#${id} .run [role=status]').innerText`;
      await eventually(`${id} is answered`, async () => /^\d/.test(String(await page.evaluate(status))));
      return [await page.evaluate(status), await page.evaluate(`document.querySelector('#${id} .run pre').innerText`)];
    };
    expect(await run('signUp', { orgName: 'Browser', email: 'browser@acme.test' })).toEqual([
      expect.stringMatching(/^201 Created in \d+ ms; the new key is kept in this tab$/),
      expect.stringContaining('"apiKey": "pst_'),
    ]);
    await page.open(`${origin}/docs`);
    expect(await run('query', { sql: 'select 1 as one' })).toEqual([expect.stringMatching(/^200 OK/), expect.stringContaining('"one": 1')]);
    expect(await run('query', { sql: 'selec 1' })).toEqual([expect.stringMatching(/^400/), expect.stringContaining('sql_error')]);
    expect(await page.evaluate('localStorage.length')).toBe(0);
    expect(page.complaints.filter((complaint) => !complaint.includes('status of 400'))).toEqual([]);
  });

  it('has examples that work as they stand there', async () => {
    const { id, apiKey } = await service.signUp();
    await page.open(`${origin}/docs`);
    const examples = (await page.evaluate(
      `['query', 'transaction'].flatMap((id) => [...document.querySelectorAll('#' + id + ' .sample')].map((one) => [one.dataset.language, one.querySelector('code').textContent]))`,
    )) as [keyof typeof INTERPRETERS, string][];
    expect(examples).toHaveLength(8);
    const env = { PATH: process.env.PATH, ORG: id, API_KEY: apiKey };
    for (const [language, text] of examples) {
      const [program, ...options] = INTERPRETERS[language];
      const { stdout } = await promisify(execFile)(program, [...options, text], { env });
      expect([language, stdout]).toEqual([language, expect.stringMatching(/12\.50|committed|COMMIT/)]);
    }
  });
});
