import { Socket } from 'node:net';

/** More shapes than V8 keeps apart at one place in the code. */
const SHAPES = ['a', 'b', 'c', 'd', 'e', 'f'];
/** V8 takes notice of what it meets only after a function has run for a while. */
const TIMES = 10;

/**
 * Makes sockets cheaper to make. Node copies the options that a socket is made with, and adds to the copy. As long as V8 has
 * met few shapes of options there, each copy gets a hidden class of its own, which has to be looked through anew whenever the
 * socket's constructors ask for one of thirty options: some 12 µs for each client that is accepted. Once it has met
 * many, all copies are of one class. Where V8 does otherwise (it may, any day), this changes nothing.
 */
export function shareSocketShapes(): void {
  for (let time = 0; time < TIMES; time++) for (const shape of SHAPES) new Socket({ [shape]: undefined });
}
