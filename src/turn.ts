import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';

let began = 0;

/**
 * When the event loop has last come back from waiting, by `performance.now()`, as far as those know who ask in every turn:
 * what is found then has been there by then, and what is told of it only later has waited for nothing but others of that turn.
 */
export function turnBegan(): number {
  if (began > 0) return began;
  began = performance.now();
  setImmediate(ended);
  return began;
}

function ended(): void {
  began = 0;
}

const SLICE_MS = 3;

/** Long work that lets others have their turn every few milliseconds. */
export class Slices {
  readonly #sliceMs: number;
  #began = performance.now();

  constructor(sliceMs = SLICE_MS) {
    this.#sliceMs = sliceMs;
  }

  /** To be waited for often: most times there is nothing to wait for. */
  giveWay(): Promise<void> | undefined {
    return performance.now() - this.#began < this.#sliceMs ? undefined : this.#pass();
  }

  async #pass(): Promise<void> {
    await nextTurn();
    this.#began = performance.now();
  }
}
