import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, open, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { rotateLog } from '../../../src/embedded/postmaster.ts';
import { eventually } from '../../support/eventually.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';

let scratch: Scratch;
beforeAll(async () => {
  scratch = await makeScratch();
});
afterAll(() => scratch.remove());

const numbersIn = (text: string) => text.trimEnd().split('\n').map(Number);

it('moves what is in the log of a process that goes on with the same file', async () => {
  const log = join(scratch.path, 'postgres.log');
  const file = await open(log, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT, 0o600);
  const writer = spawn('/bin/sh', ['-c', 'n=0; while read -r go; do n=$((n + 1)); echo "$n" >&2; done'], {
    stdio: ['pipe', 'ignore', file.fd],
  });
  await file.close();
  const writes = async (upTo: number, count: number) => {
    writer.stdin?.write('go\n'.repeat(count));
    await eventually('they are written', async () => (await readFile(log, 'utf8')).endsWith(`${upTo}\n`));
  };
  try {
    await writes(1_000, 1_000);
    expect(await rotateLog(log, 1_000_000)).toBe(false);
    expect(await rotateLog(log, 100)).toBe(true);
    expect(numbersIn(await readFile(`${log}.1`, 'utf8'))).toEqual(Array.from({ length: 1_000 }, (_, at) => at + 1));
    expect([(await stat(log)).size, (await stat(`${log}.1`)).mode & 0o777]).toEqual([0, 0o600]);
    await writes(1_002, 2);
    expect(numbersIn(await readFile(log, 'utf8'))).toEqual([1_001, 1_002]);
    expect(await rotateLog(log, 1)).toBe(true);
    expect(numbersIn(await readFile(`${log}.1`, 'utf8'))).toEqual([1_001, 1_002]);
  } finally {
    const ended = once(writer, 'exit');
    writer.stdin?.end();
    await ended;
  }
});

it('copies a log of many parts, and one whose size is a multiple of these', async () => {
  const log = join(scratch.path, 'large.log');
  for (const size of [3 * 1024 * 1024 + 17, 2 * 1024 * 1024]) {
    const bytes = Buffer.alloc(size, 'a log of many lines\n');
    await writeFile(log, bytes);
    expect(await rotateLog(log, 1024)).toBe(true);
    expect((await readFile(`${log}.1`)).equals(bytes)).toBe(true);
    expect((await stat(log)).size).toBe(0);
  }
});
