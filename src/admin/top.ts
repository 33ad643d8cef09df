import { setTimeout as delay } from 'node:timers/promises';
import { organizationOfPool } from '../backend/organization-pool.ts';
import { ServiceError } from '../errors.ts';
import type { Activity, OrganizationActivity, PoolActivity } from '../router/activity.ts';
import { printable, table } from './operations.ts';

/** Where it is shown. */
export interface Terminal {
  readonly columns: number;
  readonly rows: number;
  write(text: string): void;
}

interface TopOptions {
  readonly activity: Pick<Activity, 'statistics' | 'pools'>;
  readonly terminal: Terminal;
  /** Aborts when it is to end. */
  readonly signal: AbortSignal;
  /** How many organizations are shown at most; undefined: as many as there is room for. */
  readonly limit: number | undefined;
  readonly everyMs?: number;
}

const EVERY_MS = 2_000;
/** The other screen of the terminal, without a cursor, and back. @see https://invisible-island.net/xterm/ctlseqs/ctlseqs.html */
const ENTER = '\x1b[?1049h\x1b[?25l';
const LEAVE = '\x1b[?25h\x1b[?1049l';
const HOME = '\x1b[H';
const CLEAR_LINE = '\x1b[K';
const CLEAR_BELOW = '\x1b[J';

interface Sample {
  readonly at: number;
  readonly statistics: readonly OrganizationActivity[];
  readonly pools: readonly PoolActivity[];
}

/** Shows what the busiest organizations do, again and again until it is to end. @throws ServiceError `not_ready` at the beginning */
export async function showTop({ activity, terminal, signal, limit, everyMs = EVERY_MS }: TopOptions): Promise<void> {
  const sample = async (): Promise<Sample> => {
    const [statistics, pools] = await Promise.all([activity.statistics(), activity.pools()]);
    return { at: performance.now(), statistics, pools };
  };
  let before = await sample();
  terminal.write(ENTER);
  try {
    terminal.write(`${HOME}${CLEAR_BELOW}counting for ${everyMs / 1_000} s …`);
    while (!signal.aborted) {
      await delay(everyMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      // A process that does not answer is waited for.
      const now = await sample().catch((error: unknown) => (error instanceof ServiceError ? error : Promise.reject(error)));
      const lines = now instanceof ServiceError ? [printable(now.message)] : frame(before, now, { rows: terminal.rows, limit });
      terminal.write(`${HOME}${lines.map((line) => `${line.slice(0, terminal.columns)}${CLEAR_LINE}`).join('\r\n')}${CLEAR_BELOW}`);
      if (!(now instanceof ServiceError)) before = now;
    }
  } finally {
    terminal.write(LEAVE);
  }
}

const HEADINGS = ['ORGANIZATION', 'REQUESTS/S', 'TRANSACTIONS/S', 'KB IN/S', 'KB OUT/S', 'BUSY', 'SESSIONS', 'WAITING', 'BACKENDS'];
/** The summary, an empty line and the headings. */
const LINES_ABOVE = 3;

/** What the terminal shows: a summary, and a line for each organization, the busiest first. */
function frame(
  before: Sample,
  now: Sample,
  { rows, limit = Number.POSITIVE_INFINITY }: Pick<Terminal, 'rows'> & Pick<TopOptions, 'limit'>,
): string[] {
  const seconds = Math.max(0.001, (now.at - before.at) / 1_000);
  const known = new Map(before.statistics.map((one) => [one.organizationId, one.now]));
  const all = new Map<string, Line>();
  const lineOf = (id: string) => {
    const line = all.get(id) ?? { requests: 0, transactions: 0, bytesIn: 0, bytesOut: 0, heldMs: 0, sessions: 0, waiting: 0, backends: 0 };
    all.set(id, line);
    return line;
  };
  for (const { organizationId, now: totals } of now.statistics) {
    const line = lineOf(organizationId);
    // A process that has begun anew counts from 0.
    const since = (name: 'requests' | 'transactions' | 'bytesIn' | 'bytesOut' | 'heldMs') =>
      Math.max(0, totals[name] - (known.get(organizationId)?.[name] ?? 0)) / seconds;
    for (const name of ['requests', 'transactions', 'bytesIn', 'bytesOut', 'heldMs'] as const) line[name] = since(name);
  }
  for (const { pool, clients, waiting, active, idle, opening } of now.pools) {
    const line = lineOf(organizationOfPool(pool));
    line.sessions += clients + waiting;
    line.waiting += waiting;
    line.backends += active + idle + opening;
  }
  const sum = (of: keyof Line) => [...all.values()].reduce((total, line) => total + line[of], 0);
  const busiest = [...all].sort(([, a], [, b]) => b.requests - a.requests || b.heldMs - a.heldMs || b.sessions - a.sessions);
  const shown = busiest.slice(0, Math.max(0, Math.min(limit, rows - LINES_ABOVE - 1)));
  const cells = shown.map(([id, line]) => {
    const rates = [line.requests, line.transactions, line.bytesIn / 1_000, line.bytesOut / 1_000, line.heldMs / 1_000];
    return [id, ...rates.map((rate) => rate.toFixed(1)), ...[line.sessions, line.waiting, line.backends].map(String)];
  });
  const counts = `${all.size} organizations, ${sum('sessions')} sessions, ${sum('waiting')} waiting, ${sum('backends')} backends`;
  const summary = `${new Date().toISOString().slice(11, 19)} UTC   ${sum('requests').toFixed(1)} requests/s, ${counts}   (q ends)`;
  return [summary, '', ...table(HEADINGS, cells).split('\n')];
}

type Line = Record<'requests' | 'transactions' | 'bytesIn' | 'bytesOut' | 'heldMs' | 'sessions' | 'waiting' | 'backends', number>;

/** Ctrl-C, Ctrl-D, and as in other programs of that name. */
const END_KEYS: readonly string[] = ['\x03', '\x04', 'q', 'Q'];

/**
 * Shows it on the terminal of this process, until somebody ends it.
 * @throws ServiceError `invalid_request` where there is no terminal
 */
export async function runTop(activity: TopOptions['activity'], limit: number | undefined): Promise<void> {
  const { stdin, stdout } = process;
  if (!stdin.isTTY || !stdout.isTTY)
    throw new ServiceError(
      'invalid_request',
      'top shows something new every two seconds on a terminal, and here is none: stats prints once',
    );
  const end = new AbortController();
  const typed = (keys: Buffer) => {
    if (END_KEYS.some((key) => keys.includes(key))) end.abort();
  };
  stdin.setRawMode(true).on('data', typed).resume();
  try {
    const terminal = {
      get columns() {
        return stdout.columns;
      },
      get rows() {
        return stdout.rows;
      },
      write: (text: string) => void stdout.write(text),
    };
    await showTop({ activity, terminal, signal: end.signal, limit });
  } finally {
    stdin.setRawMode(false).off('data', typed).pause();
  }
}
