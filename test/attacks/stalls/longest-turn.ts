import { openSync, readSync } from 'node:fs';
import { createServer } from 'node:net';

/*
 * Loaded into the service before it starts (`--import`). On a Unix socket it tells how much processor time the event loop's longest
 * turn has taken since it was last asked. It is not the time by the clock: on a busy machine a thread that does little may wait
 * for a processor as long as one that does much. Nor does it include what the kernel needs to find and clear new pages of memory,
 * which is 1 us for each on some machines and 15 on others: for 15 MB, 4 ms or 60.
 */

const LOOKS_EVERY_MS = 2;
const SAMPLE_BYTES = 16 * 1024 * 1024;
const SAMPLES = 3;

/** What this thread has used. */
interface Usage {
  /** Processor time in milliseconds. */
  readonly time: number;
  /** Page faults that needed no input. */
  readonly faults: number;
}

/** @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html for field 10, and schedstat's first number in nanoseconds */
function usageOfThread(): () => Usage {
  try {
    const text = Buffer.alloc(1_024);
    const [times, counts] = ['schedstat', 'stat'].map((name) => openSync(`/proc/thread-self/${name}`, 'r')) as [number, number];
    const read = (file: number) => text.toString('latin1', 0, readSync(file, text, 0, text.length, 0));
    return () => ({
      time: Number(read(times).split(' ', 1)[0]) / 1e6,
      // The second field, a name in parentheses, may hold spaces.
      faults: Number(read(counts).split(') ').at(-1)?.split(' ')[7]),
    });
  } catch {
    return () => {
      const { user, system } = process.cpuUsage();
      return { time: (user + system) / 1_000, faults: process.resourceUsage().minorPageFault };
    };
  }
}

const now = usageOfThread();

/** The mean of some thousands, in milliseconds. The memory is kept, so that each sample touches new pages. */
function timeOfFault(): number {
  const kept: Uint8Array[] = [];
  const start = now();
  for (let left = SAMPLES; left > 0; left -= 1) kept.push(new Uint8Array(SAMPLE_BYTES).fill(1));
  const end = now();
  return (end.time - start.time) / (end.faults - start.faults);
}

const fault = timeOfFault();
let longest = 0;
let before = now();

function look(): void {
  const at = now();
  longest = Math.max(longest, at.time - before.time - (at.faults - before.faults) * fault);
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
