import { readdir, readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeScratch, type Scratch } from '../../support/scratch.ts';

/** Of all files together, and of what is loaded before the editor appears, in brotli. */
const TOTAL_MAX_BYTES = 250_000;

interface Budget {
  readonly totalMaxBytes: number;
  readonly firstMaxBytes: number;
}

const { buildConsole }: { buildConsole(outdir: string, budget?: Budget): Promise<unknown> } = createRequire(import.meta.url)(
  '../../../http/console/build.cjs',
);

let scratch: Scratch;
beforeAll(async () => {
  scratch = await makeScratch();
});
afterAll(() => scratch.remove());

it('the console has at most 250 kB in brotli', async () => {
  const folder = join(scratch.path, 'console');
  await buildConsole(folder);
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.br'));
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`the console has ${names.length} files and ${total} bytes in brotli`);
  expect(names.length).toBeGreaterThan(5);
  expect(total).toBeLessThanOrEqual(TOTAL_MAX_BYTES);
  expect(await readFile(join(folder, 'index.html'), 'utf8')).toContain('<script type="module"');
});

it.each([
  ['all of the console', { totalMaxBytes: 1_000, firstMaxBytes: 40_000 }],
  ['what is loaded before the editor appears', { totalMaxBytes: TOTAL_MAX_BYTES, firstMaxBytes: 1_000 }],
])('the build fails when %s is larger than it may be', async (what, budget) => {
  await expect(buildConsole(join(scratch.path, 'too-large'), budget)).rejects.toThrow(`${what} has `);
});
