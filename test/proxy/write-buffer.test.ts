import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { WriteBuffer } from '../../proxy/write-buffer.ts';

const LARGE = Buffer.alloc(80_000, 'L');

let written: string[];
let run: WriteBuffer;
beforeEach(() => {
  written = [];
  run = new WriteBuffer({ write: (bytes) => written.push(bytes.toString('latin1')) });
});

describe('what is added', () => {
  it('is one piece where it lies side by side, whatever buffer it is seen through', () => {
    const memory = Buffer.alloc(40_000, 'm');
    run.add(memory, 10, 20_000);
    run.add(memory.subarray(20_000), 0, 10_000);
    run.add(memory, 30_000, 40_000);
    run.flush();
    expect(written.map(({ length }) => length)).toEqual([39_990]);
    run.add(memory, 0, 10_000);
    run.add(memory, 20_000, 30_000);
    run.flush();
    expect(written.map(({ length }) => length)).toEqual([39_990, 10_000, 10_000]);
  });

  it('goes out in order, and can be forgotten before', () => {
    const one = Buffer.from('one, two, three');
    run.add(one, 0, 5);
    run.clear();
    run.add(one, 5, 10);
    run.insert(Buffer.from('2.5, '));
    run.add(one, 10, 15);
    run.flush();
    expect(written.join('')).toBe('two, 2.5, three');
  });
});

describe('the answer that is not over', () => {
  const part = (text: string, goesOn = true) => {
    run.insert(Buffer.from(text));
    run.flushPart(goesOn);
  };

  it('goes out as it comes', () => {
    part('one');
    part('two');
    expect(written).toEqual(['one', 'two']);
  });

  describe('and is long', () => {
    beforeEach(() => {
      for (let sent = 0; sent < 262_144; sent += LARGE.length) part(LARGE.toString('latin1'));
      written.length = 0;
    });

    it('is gathered, as long as a message is not whole', () => {
      part('one');
      part('two');
      expect(written).toEqual([]);
      part('three', false);
      expect(written).toEqual(['onetwothree']);
    });

    it('is gathered until it is much', () => {
      part('one');
      part(LARGE.toString('latin1'));
      expect(written.join('')).toBe(`one${LARGE.toString('latin1')}`);
    });

    it('does not wait long for what does not come', async () => {
      part('one');
      await delay(50);
      expect(written).toEqual(['one']);
    });

    it('is not written any more once it is forgotten, nor is what comes then and is not to go out yet', async () => {
      part('one');
      run.clear();
      run.insert(Buffer.from('two'));
      await delay(50);
      expect(written).toEqual([]);
      run.flush();
      expect(written).toEqual(['two']);
    });

    it('leaves the next answer as it comes', () => {
      run.flush();
      part('one');
      expect(written).toEqual(['one']);
    });
  });
});
