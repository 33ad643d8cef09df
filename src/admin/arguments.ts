import { NAME_RULES, parseEmail } from '../catalog/organization.ts';
import type { Address } from '../placement/citus.ts';
import { printable } from './terminal-output.ts';
import { UsageError } from './usage-error.ts';

/** @throws UsageError */
export function addressesOf(text: string): Address[] {
  return text.split(',').map(addressOf);
}

/** @throws UsageError */
export function addressOf(text: string): Address {
  const [, host, port] = /^([\w.-]+):(\d{1,5})$/.exec(text.trim()) ?? [];
  if (host === undefined) throw new UsageError(`${printable(text)} is no address with a port: db1.example.com:5432`);
  return { host, port: Number(port) };
}

/** @throws UsageError */
export function nameOf(text: string): string {
  const name = text.trim();
  const broken = NAME_RULES.find(({ isKept }) => !isKept(name));
  if (broken !== undefined) throw new UsageError(`the name ${broken.message}`);
  return name;
}

/** @throws UsageError */
export function emailOf(text: string): string {
  const email = parseEmail(text.trim());
  if (email === undefined) throw new UsageError(`${printable(text)} is no valid e-mail address`);
  return email;
}

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const LIFETIME_MAX_DAYS = 365;

/** @throws UsageError */
export function lifetimeMsOf(text: string): number {
  const [, count, unit = ''] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? [];
  const lifetimeMs = Number(count) * (UNIT_MS[unit] ?? Number.NaN);
  if (lifetimeMs <= LIFETIME_MAX_DAYS * 86_400_000) return lifetimeMs;
  throw new UsageError(`--expires is a number of minutes, hours or days, at most ${LIFETIME_MAX_DAYS}d: 30m, 12h, 7d`);
}
