import { openSync, readSync } from 'node:fs';
import { createServer } from 'node:net';

/*
 * Loaded into the service before it starts (`--import`). On a Unix socket it tells how much processor time the event loop's longest
 * turn has taken since it was last asked. It is not the time by the clock: on a busy machine a thread that does little may wait
 * for a processor as long as one that does much. After it stands what the machine takes to copy 15 MB to memory that the process
 * has not used yet: the kernel finds and clears its pages then, which takes 3 ms on some machines and 60 on others.
 */

const LOOKS_EVERY_MS = 2;
const BODY_BYTES = 15_000_000;

/** Of this thread, in milliseconds: the first number in its schedstat, where there is one; else of the whole process. */
function processorTime(): () => number {
  try {
    const file = openSync('/proc/thread-self/schedstat', 'r');
    const text = Buffer.alloc(64);
    return () => Number(text.toString('latin1', 0, readSync(file, text, 0, text.length, 0)).split(' ', 1)[0]) / 1e6;
  } catch {
    return () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1_000;
    };
  }
}

const now = processorTime();

/** The least of a few, in milliseconds. All copies are held, so that each is made in new memory. */
function timeOfCopy(): number {
  const body = Buffer.alloc(BODY_BYTES, 'a');
  const copies: Buffer[] = [];
  let least = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 3; tries += 1) {
    const start = now();
    copies.push(Buffer.concat([body]));
    least = Math.min(least, now() - start);
  }
  return least;
}

const copy = timeOfCopy();
let longest = 0;
let before = now();

function look(): void {
  const at = now();
  longest = Math.max(longest, at - before);
  before = at;
}

setInterval(look, LOOKS_EVERY_MS).unref();

createServer((asker) => {
  look();
  asker.on('error', () => {});
  asker.end(`${longest} ${copy}`);
  longest = 0;
})
  .listen(process.env.LONGEST_TURN_SOCKET)
  .unref();
