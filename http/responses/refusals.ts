import { setTimeout as sleep } from 'node:timers/promises';
import type { ServiceError } from '../../src/errors.ts';
import { HOLD_MS, type RefusalLimit } from '../../src/router/limits/refusal-limit.ts';
import { ERRORS, serviceError } from '../errors.ts';
import type { RequestContext } from '../request-context.ts';

/** Counts refusals by the address that they go to. */
export type Refusals = Pick<RefusalLimit, 'count'>;

/**
 * Counts the refusal of a call that has shown no valid key.
 * @returns what it is told instead, and then its connection closed, when it has waited for it; undefined where it is told at once
 */
export function holdRefusal(error: unknown, call: RequestContext | undefined, refusals: Refusals): Promise<ServiceError> | undefined {
  if (call === undefined || call.tenant !== undefined || ERRORS[serviceError(error).kind].status >= 500) return undefined;
  const instead = refusals.count(call.origin.sourceIp);
  return instead && sleep(HOLD_MS, instead);
}
