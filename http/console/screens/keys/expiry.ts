/** How long a key is to be valid, as it is chosen. */
export type Lifetime = 'never' | 'hour' | 'day' | 'month' | 'quarter' | 'year' | 'until';

export const LIFETIMES: readonly (readonly [Lifetime, string])[] = [
  ['never', 'does not expire'],
  ['hour', 'in an hour'],
  ['day', 'in 24 hours'],
  ['month', 'in 30 days'],
  ['quarter', 'in 90 days'],
  ['year', 'in 365 days'],
  ['until', 'at a time …'],
];

const HOURS: Readonly<Partial<Record<Lifetime, number>>> = { hour: 1, day: 24, month: 720, quarter: 2_160, year: 8_760 };

export interface Expiry {
  readonly lifetime: Lifetime;
  /** What a `datetime-local` field holds: the time of this browser. */
  readonly until: string;
}

export function expiryOf(expiresAt: string | null): Expiry {
  return expiresAt === null ? { lifetime: 'never', until: '' } : { lifetime: 'until', until: toLocal(new Date(expiresAt)) };
}

/** @returns RFC 3339; null: it does not expire; undefined: there is no such time */
export function instantOf({ lifetime, until }: Expiry, now = Date.now()): string | null | undefined {
  if (lifetime === 'never') return null;
  const hours = HOURS[lifetime];
  const at = hours === undefined ? new Date(until) : new Date(now + hours * 3_600_000);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** `2025-01-31T09:30`, without the offset. */
function toLocal(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
