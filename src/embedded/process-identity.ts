import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * When a process was started. Together with the process id it identifies one process; the id alone may be reused.
 * @returns undefined when there is no such process
 */
export async function startOf(pid: number): Promise<string | undefined> {
  return process.platform === 'linux' ? startOnLinux(pid) : startElsewhere(pid);
}

/** @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html field 22, in clock ticks since boot */
async function startOnLinux(pid: number): Promise<string | undefined> {
  try {
    const [boot, stat] = await Promise.all([readFile('/proc/sys/kernel/random/boot_id', 'utf8'), readFile(`/proc/${pid}/stat`, 'utf8')]);
    // The second field is the command's name in parentheses, which may itself hold spaces and parentheses.
    const [state, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' ? undefined : `${boot.trim()}/${fields[18]}`;
  } catch {
    return undefined;
  }
}

async function startElsewhere(pid: number): Promise<string | undefined> {
  try {
    const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)], { env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' } });
    return stdout.trim() || undefined;
  } catch {
    return undefined;
  }
}
