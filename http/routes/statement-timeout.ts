import type { Config } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';

/** @throws ServiceError `invalid_request` for a longer timeout than the service allows */
export function timeoutOf(wantedMs: number | undefined, config: Config): number {
  const { POSTERN_STATEMENT_TIMEOUT_MS: usualMs, POSTERN_STATEMENT_TIMEOUT_MAX_MS: maxMs } = config;
  if (wantedMs === undefined) return usualMs === 0 ? maxMs : Math.min(usualMs, maxMs);
  if (wantedMs > maxMs) throw new ServiceError('invalid_request', `timeoutMs: must be a whole number from 1 to ${maxMs}`);
  return wantedMs;
}
