import { expect, it } from 'vitest';
import { showTop } from '../../../src/admin/top.ts';
import { ServiceError } from '../../../src/errors.ts';
import type { OrganizationActivity, PoolActivity, Totals } from '../../../src/router/activity.ts';

const NOTHING: Totals = {
  ...{ leases: 0, transactions: 0, requests: 0, bytesIn: 0, bytesOut: 0, heldMs: 0, requestMs: 0, waitMs: 0 },
  ...{ parses: 0, serverParses: 0, binds: 0 },
};
const totals = (organizationId: string, now: Partial<Totals>): OrganizationActivity => {
  return { organizationId, now: { ...NOTHING, ...now }, lately: NOTHING, perSecond: NOTHING };
};
const pool = (name: string, counts: Partial<PoolActivity>): PoolActivity => {
  return { pool: name, clients: 0, waiting: 0, active: 0, idle: 0, opening: 0, leaving: 0, longestWaitMs: 0, ...counts };
};

/** @returns what is written, until `frames` have been */
async function shown(
  samples: readonly (readonly OrganizationActivity[] | Error)[],
  frames: number,
  size = { columns: 200, rows: 24 },
): Promise<string[]> {
  const written: string[] = [];
  const end = new AbortController();
  let asked = 0;
  await showTop({
    activity: {
      async statistics() {
        const sample = samples[Math.min(asked, samples.length - 1)] ?? [];
        asked += 1;
        if (sample instanceof Error) throw sample;
        return [...sample];
      },
      pools: async () => [pool('org_busy', { clients: 2, waiting: 1, active: 1, idle: 3 }), pool('org_idle', { clients: 4 })],
    },
    terminal: {
      ...size,
      write(text) {
        written.push(text);
        // The first two are the other screen and what is shown until something has been counted.
        if (written.length === frames + 2) end.abort();
      },
    },
    signal: end.signal,
    limit: undefined,
    everyMs: 1,
  });
  return written;
}

/** Without what moves the cursor and clears the rest. */
const linesOf = (frame = '') => ['H', 'K', 'J'].reduce((text, end) => text.replaceAll(`\x1b[${end}`, ''), frame).split('\r\n');

it('shows what organizations have done since it looked before, the busiest first', async () => {
  const before = [totals('org_idle', { requests: 7 }), totals('org_busy', { requests: 1_000 })];
  const after = [totals('org_idle', { requests: 7 }), totals('org_busy', { requests: 1_500, bytesIn: 9_000 })];
  const written = await shown([before, after], 1);
  expect(written[0]).toBe('\x1b[?1049h\x1b[?25l');
  expect(written.at(-1)).toBe('\x1b[?25h\x1b[?1049l');
  const lines = linesOf(written[2]);
  expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d UTC {3}\d+\.\d requests\/s, 2 organizations, 7 sessions, 1 waiting, 4 backends {3}\(q ends\)$/);
  expect(lines[2]).toMatch(/^ORGANIZATION +REQUESTS\/S +TRANSACTIONS\/S /);
  expect(lines[3]).toMatch(/^org_busy +[1-9]\d*\.\d +0\.0 +\d+\.\d +0\.0 +0\.0 +3 +1 +4$/);
  expect(lines[4]).toMatch(/^org_idle +0\.0 +0\.0 +0\.0 +0\.0 +0\.0 +4 +0 +0/);
});

it('counts nothing of processes that have begun anew', async () => {
  const [, , frame] = await shown([[totals('org_busy', { requests: 1_000 })], [totals('org_busy', { requests: 3 })]], 1);
  expect(frame).toMatch(/org_busy +0\.0 /);
});

it('fits into the terminal', async () => {
  const many = Array.from({ length: 50 }, (_, at) => totals(`org_${at}`, { requests: at }));
  const [, , frame] = await shown([[], many], 1, { columns: 30, rows: 10 });
  const lines = linesOf(frame);
  expect(lines.length).toBe(9);
  expect(Math.max(...lines.map(({ length }) => length))).toBe(30);
  expect(lines[3]).toMatch(/^org_49 /);
});

it('goes on when a process does not answer for a while', async () => {
  const refusal = new ServiceError('not_ready', "1 of the service's processes do not answer");
  const written = await shown([[], refusal, [totals('org_busy', { requests: 5 })]], 2);
  expect(written[2]).toContain("1 of the service's processes do not answer");
  expect(written[3]).toMatch(/org_busy +[1-9]/);
});
