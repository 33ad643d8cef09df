import type { Placement } from '../../catalog/organizations/organization.ts';
import type { QueryStatistic } from '../../catalog/query-statistics/query-statistics.ts';
import { clientText } from '../../router/schema-rewriting/server-text.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { redactSecrets } from '../../syntax/redaction.ts';

/** A statistic as its organization sees it. */
export type ShownQuery = Omit<QueryStatistic, 'mentionsPasswords'>;

/** Masks passwords and keys in the texts, and names the organization's schema as it does itself. */
export async function showQueries(statistics: readonly QueryStatistic[], { kind, schema }: Placement): Promise<readonly ShownQuery[]> {
  const slices = new TimeSlices();
  const shown: ShownQuery[] = [];
  for (const { mentionsPasswords, sql, totalMs, meanMs, maxMs, ...counts } of statistics) {
    const text = redactSecrets(sql, mentionsPasswords);
    const times = { totalMs: toMicroseconds(totalMs), meanMs: toMicroseconds(meanMs), maxMs: toMicroseconds(maxMs) };
    shown.push({ ...counts, ...times, sql: kind === 'schema' ? clientText(text, schema) : text });
    await slices.pause();
  }
  return shown;
}

function toMicroseconds(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
