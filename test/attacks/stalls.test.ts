import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENTS } from '../support/service.ts';
import { INPUT_ATTACKS } from './stalls/inputs.ts';
import { PIPELINED_ATTACKS } from './stalls/pipelined.ts';
import { slowness } from './stalls/processor-speed.ts';
import { RESULT_ATTACKS } from './stalls/results.ts';
import { longestOf, type Stall, StallScene } from './stalls/stalls.ts';

/** What one request may add to the longest turn of an idle service, in processor time, on a processor that is not slower than usual. */
const TURN_MAX_MS = 50;
/** What others may wait by the clock beyond twice what they wait beside nobody: for whatever else than the event loop. */
const WAIT_MAX_MS = 3_000;
const IDLE_MS = 1_000;
/** The machine, too, makes others wait; but what stalls the service does so each time. */
const TRIES_MAX = 3;

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let scene: StallScene;
  beforeAll(async () => {
    scene = await StallScene.open(kind);
    await scene.idle(IDLE_MS);
  });
  afterAll(() => scene?.close());

  // The placement changes what becomes of SQL text, and not of results and other input.
  const inPlacement = kind === 'schema' ? INPUT_ATTACKS : [...INPUT_ATTACKS, ...RESULT_ATTACKS, ...PIPELINED_ATTACKS];
  const attacks = inPlacement.filter(({ placement = kind }) => placement === kind);

  it.each(attacks)('others are served beside $what', async ({ run, answer }) => {
    const seen: string[] = [];
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const idle = await scene.idle(tries === 0 ? IDLE_MS / 4 : IDLE_MS);
      const stall = await scene.during(async () => expect(await run(scene.attacker)).toBe(answer));
      const slow = slowness();
      if (isSmall(stall, idle, slow)) return;
      seen.push(`${describeStall(stall, idle)}, a processor ${slow.toFixed(1)} times as slow as usual`);
    }
    expect.fail(seen.join('\n'));
  });
});

function isSmall(stall: Stall, idle: Stall, slow: number): boolean {
  return stall.turn <= idle.turn + TURN_MAX_MS * slow && longestOf(stall) <= 2 * longestOf(idle) + WAIT_MAX_MS;
}

function describeStall(stall: Stall, idle: Stall): string {
  const figures = ({ turn, waits }: Stall) =>
    `turn ${Math.round(turn)} ms, waits ${Object.entries(waits)
      .map(([what, ms]) => `${what} ${Math.round(ms)}`)
      .join(', ')}`;
  return `${figures(stall)} (alone: ${figures(idle)})`;
}
