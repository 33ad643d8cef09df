import { openSync, readSync } from 'node:fs';
import { createServer } from 'node:net';

/*
 * Loaded into the service before it starts (`--import`). On a Unix socket it tells how much processor time the event loop's longest
 * turn has taken since it was last asked. It is not the time by the clock: on a busy machine a thread that does little may wait
 * for a processor as long as one that does much.
 */

const LOOKS_EVERY_MS = 2;

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
  asker.end(String(longest));
  longest = 0;
})
  .listen(process.env.LONGEST_TURN_SOCKET)
  .unref();
