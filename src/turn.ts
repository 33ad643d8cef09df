import { performance } from 'node:perf_hooks';

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

/** When long work began in this turn of the event loop; 0 while there has been none. */
let sliceBegan = 0;
const waiting: (() => void)[] = [];

/**
 * Long work that lets others have their turn every few milliseconds. All long work of the process shares them: each turn of
 * the event loop has one slice of it, however many are at work.
 */
export class Slices {
  readonly #sliceMs: number;

  constructor(sliceMs = SLICE_MS) {
    this.#sliceMs = sliceMs;
    sliceStart();
  }

  /** To be waited for often: most times there is nothing to wait for. */
  giveWay(): Promise<void> | undefined {
    const start = sliceStart();
    return performance.now() - start < this.#sliceMs ? undefined : new Promise((resolve) => waiting.push(resolve));
  }
}

function sliceStart(): number {
  if (sliceBegan > 0) return sliceBegan;
  sliceBegan = performance.now();
  setImmediate(endSlice);
  return sliceBegan;
}

function endSlice(): void {
  sliceBegan = 0;
  const next = waiting.shift();
  if (next === undefined) return;
  sliceStart();
  next();
}
