import { describe, expect, it } from 'vitest';
import { LimitedJsonDocument } from '../../../src/sql/schema.ts';

/** @param texts added to an array of at most two items, in a document of at most 40 bytes */
function written(texts: readonly string[], spend: (bytes: number) => boolean = () => true) {
  const items = new LimitedJsonDocument(40, spend);
  items.open('{"a":', 2);
  for (const text of texts) items.add(Buffer.from(`--${text}--`), 2, 2 + text.length);
  const isComplete = items.close();
  items.open(',"b":', 2);
  return { isComplete, document: `${items.close()} ${items.end('}')}` };
}

describe('a document of JSON arrays', () => {
  it.each([
    [[], true, 'true {"a":[],"b":[]}'],
    [['1', '{"x":2}'], true, 'true {"a":[1,{"x":2}],"b":[]}'],
    [['1', '2', '3'], false, 'true {"a":[1,2],"b":[]}'],
    [['1', '"23456789012345678901234567890123456789"', '3'], false, 'false {"a":[1],"b":[]}'],
  ])('leaves out what exceeds a limit: %j', (texts, isComplete, document) => {
    expect(written(texts)).toEqual({ isComplete, document });
  });

  it('is given up where there is no memory', () => {
    const asked: number[] = [];
    const spend = (bytes: number) => asked.push(bytes) < 2;
    expect(written(['1', '22', '3'], spend)).toEqual({ isComplete: false, document: 'false {"a":[1],"b":[]}' });
    expect(asked).toEqual([1, 2]);
  });
});
