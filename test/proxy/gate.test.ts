import { expect, it } from 'vitest';
import { Gate, Reason } from '../../proxy/gate.ts';

const [first, second, third] = ['first', 'second', 'third'].map((text) => Buffer.from(text)) as [Buffer, Buffer, Buffer];

it('what has to be passed on first comes before what waits already', () => {
  const gate = new Gate();
  gate.holdNext();
  gate.hold(second);
  expect(gate.isWaiting).toBe(false);
  gate.holdFirst(first, Reason.backend);
  gate.hold(third);
  expect(gate.isWaiting).toBe(true);
  expect(gate.inputBytes).toBe(first.length + second.length + third.length);
  expect(gate.release()).toEqual([first, second, third]);
});

it('what is first can be replaced by what becomes of it', () => {
  const gate = new Gate();
  gate.holdFirst(second, Reason.rewriting);
  gate.holdFirst(first, Reason.rewriting);
  gate.hold(third);
  gate.replaceFirst(third);
  expect(gate.release()).toEqual([third, second, third]);
});

it('is clear until something waits, or is to wait, and again when all has been released', () => {
  const gate = new Gate();
  expect(gate.input).toBeUndefined();
  gate.holdNext();
  expect(gate.input).toBeDefined();
  expect(gate.onlyInput).toBeUndefined();
  gate.holdFirst(first, Reason.rewriting);
  expect(gate.onlyInput).toBe(first);
  gate.hold(second);
  expect(gate.onlyInput).toBeUndefined();
  gate.release();
  expect(gate).toMatchObject({ input: undefined, isWaiting: false, inputBytes: 0 });
});

it('is closed for each reason until that one is gone', () => {
  const gate = new Gate();
  gate.close(Reason.signals);
  gate.close(Reason.settings);
  expect(gate.isClosed(Reason.backendBuffer)).toBe(false);
  expect(gate.isClosed(Reason.backendBuffer | Reason.signals)).toBe(true);
  gate.open(Reason.signals);
  expect([gate.isClosed(Reason.signals), gate.isClosed(Reason.settings)]).toEqual([false, true]);
});
