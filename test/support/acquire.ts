import type { BackendConnection } from '../../src/backend/connection.ts';
import type { OpenBackend } from '../../src/backend/organization-pool.ts';
import type { Pool } from '../../src/backend/pool.ts';
import { ServiceError } from '../../src/errors.ts';

/**
 * A backend of a pool, as a promise.
 * @param signal ends the wait
 * @param limitsId whose limit it counts in; default: the tenant's
 */
export function acquire(
  pool: Pool,
  tenantId: string,
  open: OpenBackend,
  signal?: AbortSignal,
  limitsId?: string,
): Promise<BackendConnection> {
  return new Promise((resolve, reject) => {
    const settle = (result: BackendConnection | ServiceError) => {
      signal?.removeEventListener('abort', withdraw);
      if (result instanceof ServiceError) reject(result);
      else resolve(result);
    };
    const waiter = { open, settle };
    const withdraw = () => {
      if (pool.leave(tenantId, waiter)) settle(new ServiceError('query_canceled', 'canceling statement due to user request'));
    };
    signal?.addEventListener('abort', withdraw, { once: true });
    pool.enqueue(tenantId, waiter, limitsId);
    if (signal?.aborted) withdraw();
  });
}
