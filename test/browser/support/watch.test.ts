import { expect, it } from 'vitest';
import { seriousFindings } from './axe.ts';
import { useConsole } from './console.ts';

const scene = useConsole();

it.each([
  ['a line on the console', () => console.info('hello'), /^info: hello/],
  ['an error that nobody catches', () => void setTimeout(() => Promise.reject(new Error('lost'))), /^thrown: .*lost/s],
  ['a style sheet', () => document.head.append(document.createElement('style')), /^error: policy: style-src-elem inline/],
  [
    'text that becomes HTML',
    () => catching(() => Object.assign(document.body, { innerHTML: '<p>' })),
    /^error: policy: require-trusted-types-for/,
  ],
  [
    'a request elsewhere',
    () => fetch('http://localhost:1/').then(undefined, () => undefined),
    /^error: policy: connect-src http:\/\/localhost:1/,
  ],
])('%s is found', async (_what, act, complaint) => {
  scene.allow(/./s);
  const page = await scene.open();
  await page.evaluate('globalThis.catching = (act) => { try { act(); } catch {} }');
  await page.evaluate(act);
  await expect.poll(() => scene.complaints()).toContainEqual(expect.stringMatching(complaint));
});

it('axe finds a field without a label, and text that is too pale', async () => {
  const page = await scene.open();
  expect(await seriousFindings(page)).toEqual([]);
  await page.evaluate(() => {
    const pale = Object.assign(document.createElement('p'), { textContent: 'Pale' });
    pale.style.cssText = 'color: #aaa; background: #fff';
    document.querySelector('main')?.append(document.createElement('input'), pale);
  });
  const findings = (await seriousFindings(page)).join('\n');
  expect(findings).toMatch(/^label .*input:/m);
  expect(findings).toContain('color-contrast ');
});

/** Stands in the page. */
declare function catching(act: () => void): void;
