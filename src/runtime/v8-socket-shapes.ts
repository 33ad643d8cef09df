import { Socket } from 'node:net';

/** More shapes than V8 distinguishes at one place in the code. */
const SHAPES = ['a', 'b', 'c', 'd', 'e', 'f'];
/** V8 records the shapes that it sees only after a function has run several times. */
const TIMES = 10;

/**
 * Makes accepting a socket cheaper. Node copies the options of a new socket and adds to the copy. As long as V8 has seen few
 * shapes of options there, each copy gets a hidden class of its own, and every look-up of one of thirty options in it is slow:
 * some 12 µs for each accepted client. Once V8 has seen many shapes, all copies have one class. This is not documented; in a
 * V8 that behaves differently this function changes nothing.
 */
export function shareSocketShapes(): void {
  for (let time = 0; time < TIMES; time++) for (const shape of SHAPES) new Socket({ [shape]: undefined });
}
