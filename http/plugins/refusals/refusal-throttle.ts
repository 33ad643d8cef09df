import { setTimeout as sleep } from 'node:timers/promises';
import type { ErrorKind, ServiceError } from '../../../src/errors.ts';
import { HOLD_MS, type RefusalLimit } from '../../../src/router/refusal-limit.ts';
import { ERRORS, serviceError } from '../../errors.ts';
import type { RequestContext } from '../../request-context.ts';

/** Counts refusals by the client's address. */
export type RefusalCounter = Pick<RefusalLimit, 'count'>;

/** The service cannot answer at the moment. An unexpected error is not meant: a request that causes one is like others that are wrong. */
function isOfTheService(kind: ErrorKind): boolean {
  return kind !== 'internal' && ERRORS[kind].status >= 500;
}

/**
 * Counts the refusal of a call without a valid key.
 * @returns resolves after a delay with the error to send instead, after which the connection is closed; undefined: no delay
 */
export function throttleRefusal(
  error: unknown,
  call: Pick<RequestContext, 'tenant' | 'origin'> | undefined,
  refusals: RefusalCounter,
): Promise<ServiceError> | undefined {
  if (call === undefined || call.tenant !== undefined || isOfTheService(serviceError(error).kind)) return undefined;
  const instead = refusals.count(call.origin.sourceIp);
  return instead && sleep(HOLD_MS, instead);
}
