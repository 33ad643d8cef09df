import { me } from './me.ts';

/** What may be chosen as a time limit: milliseconds, where empty means what the server does by default, and how it is called. */
export function statementTimeoutChoices(offeredMs: readonly number[]): readonly (readonly [string, string])[] {
  const { statementTimeoutMs = 0, maxStatementTimeoutMs = 0 } = me.value?.limits ?? {};
  const others = offeredMs.filter((ms) => ms !== statementTimeoutMs && ms <= maxStatementTimeoutMs);
  return [
    ['', statementTimeoutMs === 0 ? 'time limit of the server' : atMost(statementTimeoutMs)],
    ...others.map((ms) => [String(ms), atMost(ms)] as const),
  ];
}

function atMost(ms: number): string {
  return ms % 60_000 === 0 ? `at most ${ms / 60_000} min` : `at most ${ms / 1_000} s`;
}
