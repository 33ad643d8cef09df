import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { InputScheduler, type OrganizationInput } from '../../../src/runtime/input-scheduler.ts';

/** Longer than an organization may use of a turn. */
const LONG_MS = 3;

let scheduler: InputScheduler;
let handled: string[];
let now: number;
beforeEach(() => {
  now = 1;
  scheduler = new InputScheduler(() => now);
  handled = [];
});

/** Input that takes this long to handle; at once or deferred, it notes its name. */
function arrive(input: OrganizationInput, name: string, tookMs = 0): 'handled' | 'deferred' {
  const handle = () => {
    now += tookMs;
    handled.push(name);
  };
  if (input.begin()) {
    handle();
    input.end();
    return 'handled';
  }
  input.defer({ handleInput: handle });
  return 'deferred';
}

describe('an organization alone', () => {
  it('has all its input handled at once', () => {
    const acme = scheduler.join('acme');
    expect([1, 2, 3].map((n) => arrive(acme, `${n}`, LONG_MS))).toEqual(['handled', 'handled', 'handled']);
  });
});

describe('beside another', () => {
  let busy: OrganizationInput;
  let quiet: OrganizationInput;
  beforeEach(() => {
    busy = scheduler.join('busy');
    quiet = scheduler.join('quiet');
    arrive(quiet, 'before');
    arrive(busy, 'before');
    handled = [];
  });

  it('an organization that has used its part of the turn waits for the next ones, in the order in which its input came', async () => {
    arrive(busy, 'first', LONG_MS);
    expect(['second', 'third', 'fourth'].map((name) => arrive(busy, name))).toEqual(['deferred', 'deferred', 'deferred']);
    expect(arrive(quiet, 'quiet')).toBe('handled');
    await expect.poll(() => handled).toEqual(['first', 'quiet', 'second', 'third', 'fourth']);
  });

  it('what took longer than the part of a turn is owed by the turns that follow', async () => {
    arrive(busy, 'first', LONG_MS);
    arrive(busy, 'second');
    await nextTurn();
    expect(handled).toEqual(['first']);
    await expect.poll(() => handled).toEqual(['first', 'second']);
  });

  it('two that both have much to handle take turns', async () => {
    for (const round of [1, 2, 3]) for (const input of [busy, quiet]) arrive(input, `${input === busy ? 'a' : 'b'}${round}`, LONG_MS);
    expect(handled).toEqual(['a1', 'b1']);
    await expect.poll(() => handled).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'b3']);
  });

  it('input that is deferred takes no time until it is handled', () => {
    expect(busy.begin()).toBe(true);
    busy.defer({ handleInput: () => {} });
    expect(busy.startedAt).toBe(0);
  });

  it('new input is not handled before what is deferred, even in a new turn', async () => {
    arrive(busy, 'first', LONG_MS);
    arrive(busy, 'second', LONG_MS);
    await nextTurn();
    arrive(busy, 'third');
    await expect.poll(() => handled).toEqual(['first', 'second', 'third']);
  });
});

describe('its connections', () => {
  it('share one account, whichever of them came first, until the last has left', () => {
    const first = scheduler.join('acme');
    expect(scheduler.join('acme')).toBe(first);
    first.leave();
    expect(scheduler.join('acme')).toBe(first);
    first.leave();
    first.leave();
    expect(scheduler.join('acme')).not.toBe(first);
  });
});
