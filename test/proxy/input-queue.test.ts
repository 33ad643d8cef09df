import { expect, it } from 'vitest';
import { InputQueue } from '../../proxy/relay/input-queue.ts';

const [first, second, third] = ['first', 'second', 'third'].map((text) => Buffer.from(text)) as [Buffer, Buffer, Buffer];

it('what has to be gone on with first comes before what waits already', () => {
  const backlog = new InputQueue();
  backlog.hold();
  backlog.add(second);
  expect(backlog.isWaiting).toBe(false);
  backlog.wait(first);
  backlog.add(third);
  expect(backlog.isWaiting).toBe(true);
  expect(backlog.take()).toEqual([first, second, third]);
});

it('is clear until something waits, or is to wait, and again when all has been taken', () => {
  const backlog = new InputQueue();
  expect(backlog.isClear).toBe(true);
  backlog.hold();
  expect(backlog.isClear).toBe(false);
  expect(backlog.only).toBeUndefined();
  backlog.wait(first);
  expect(backlog.only).toBe(first);
  backlog.add(second);
  expect(backlog.only).toBeUndefined();
  backlog.take();
  expect(backlog).toMatchObject({ isClear: true, isWaiting: false });
});
