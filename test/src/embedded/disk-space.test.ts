import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DiskSpace, DiskWatch, type FileSystemBlocks } from '../../../src/embedded/disk-space.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';

const MB = 1e6;
/** Of 200 MB, 100 may only be used by root. */
const disk = (freeMb: number): FileSystemBlocks => ({
  bsize: 1_000,
  blocks: 200_000,
  bfree: freeMb * 1_000 + 100_000,
  bavail: freeMb * 1_000,
});

describe('the space on a disk', () => {
  it.each([
    [50, true],
    [5.1, true],
    [5, false],
    [0, false],
  ])('with %s % free is enough for a copy: %s', async (freeMb, isEnough) => {
    const space = new DiskSpace('/data', async () => disk(freeMb));
    expect(await space.use()).toEqual({ freeBytes: freeMb * MB, sizeBytes: 100 * MB });
    expect(await space.mayGrow()).toBe(isEnough);
    if (isEnough) await space.requireRoom();
    else await expect(space.requireRoom()).rejects.toMatchObject({ kind: 'insufficient_storage', sqlstate: '53100' });
  });

  it('that is not known keeps nobody from working', async () => {
    for (const unknown of [async () => Promise.reject(new Error('no')), async () => ({ bsize: 4096, blocks: 0, bfree: 0, bavail: 0 })]) {
      const space = new DiskSpace('/data', unknown);
      expect([await space.use(), await space.mayGrow()]).toEqual([undefined, true]);
      await space.requireRoom();
    }
  });

  it('is asked of the system', async () => {
    const use = await new DiskSpace('/').use();
    expect(use?.freeBytes).toBeGreaterThan(0);
    expect(use?.sizeBytes).toBeGreaterThan(use?.freeBytes ?? 0);
  });
});

describe('a watched disk', () => {
  let scratch: Scratch;
  let watch: DiskWatch;
  let freeMb: number;
  let now: number;
  let warnings: string[];
  beforeEach(async () => {
    scratch = await makeScratch();
    [freeMb, now, warnings] = [50, 0, []];
    watch = new DiskWatch({
      disk: new DiskSpace('/data', async () => disk(freeMb)),
      folder: scratch.path,
      observe: (observation) => warnings.push('message' in observation ? observation.message : observation.name),
      now: () => now,
    });
  });
  afterEach(async () => {
    await watch.stop();
    await scratch.remove();
  });

  const reserve = () => stat(join(scratch.path, 'disk-reserve')).catch(() => undefined);
  /** The warnings when so much is free, so many minutes later. */
  async function warningsAt(free: number, minutes = 1): Promise<string[]> {
    [freeMb, now, warnings] = [free, now + minutes * 60_000, []];
    await watch.check();
    return warnings;
  }

  it('is warned of when little is left, then once an hour, and when copies are refused', async () => {
    const low = [expect.stringMatching(/nearly full: \d+ of 100 MB, [\d.]+ %, are free$/)];
    const scarce = [expect.stringMatching(/nearly full: \d+ of 100 MB, [\d.]+ %, are free; organizations are not cloned or moved/)];
    expect(await warningsAt(10.1)).toEqual([]);
    expect(await warningsAt(10)).toEqual(low);
    expect(await warningsAt(9)).toEqual([]);
    expect(await warningsAt(10.1)).toEqual([]);
    expect(await warningsAt(9, 50)).toEqual([]);
    expect(await warningsAt(9, 8)).toEqual(low);
    expect(await warningsAt(4)).toEqual(scarce);
    expect(await warningsAt(6, 2)).toEqual([]);
    expect(await warningsAt(4, 58)).toEqual(scarce);
    expect(await warningsAt(13)).toEqual([]);
    expect(await warningsAt(9)).toEqual(low);
  });

  it('has a reserve of real blocks, which is removed when nothing is left, and made again when there is room for it', async () => {
    await watch.check();
    const made = await reserve();
    expect(made).toMatchObject({ size: 10 * MB, mode: 0o100600 });
    expect((made?.blocks ?? 0) * 512).toBeGreaterThanOrEqual(10 * MB);
    await warningsAt(40);
    expect((await reserve())?.ino).toBe(made?.ino);
    await warningsAt(10);
    expect((await reserve())?.ino).toBe(made?.ino);
    expect(await warningsAt(9)).toEqual([expect.stringContaining('in reserve is left to PostgreSQL for its WAL')]);
    expect(await reserve()).toBeUndefined();
    for (const free of [10, 15]) await warningsAt(free);
    expect(await reserve()).toBeUndefined();
    expect(await warningsAt(16)).toEqual([]);
    expect((await reserve())?.size).toBe(10 * MB);
  });

  it('that is full when the service starts gets room first', async () => {
    await watch.check();
    await watch.makeRoom();
    expect((await reserve())?.size).toBe(10 * MB);
    freeMb = 1;
    await watch.makeRoom();
    expect(await reserve()).toBeUndefined();
  });

  it('on which no reserve can be made is told of once', async () => {
    await scratch.remove();
    expect(await warningsAt(50)).toEqual([expect.stringContaining('no reserve can be kept')]);
    expect(await warningsAt(50)).toEqual([]);
  });
});
