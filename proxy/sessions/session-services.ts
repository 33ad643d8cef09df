import type { OrganizationUsage } from '../../src/catalog/usage.ts';
import type { ServiceError } from '../../src/errors.ts';
import type { Multiplexer } from '../../src/multiplex/multiplexer.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import type { Observe } from '../../src/observation.ts';
import type { SchemaRewriter } from '../../src/rewriting/rewriter.ts';
import type { Lease, Tenant } from '../../src/router/lease.ts';
import type { Router, Wait } from '../../src/router/router.ts';
import type { AuditListener } from '../inspection/ddl-audit.ts';
import type { ProcessIds } from '../pinning/process-id-translation.ts';
import type { ParseCache } from '../prepared/parse-cache.ts';
import type { StatementMemory } from '../prepared/statement-memory.ts';
import type { BufferBudget } from './buffer-budget.ts';

/** How a session ended, and the final error for the client, if it can still be sent. */
export interface RelayEnd {
  readonly reason: 'terminated' | 'client_gone' | 'backend_lost' | 'protocol_violation' | 'ended';
  readonly finalError?: Buffer;
}

/** The services that a session uses. */
export interface SessionServices extends AuditListener {
  readonly router: Pick<Router, 'tryLease'>;
  readonly tenant: Tenant;
  /** Leases a backend as soon as one is available. */
  enqueue(settle: (result: Lease | ServiceError) => void): Wait;
  /** Whether a backend may be kept for further requests: no one is waiting for one, and (unless `mayGrow`) no other can be opened. */
  mayKeepBusy(mayGrow: boolean): boolean;
  /** Shares backends with other sessions of the organization. */
  readonly multiplexer: Multiplexer;
  readonly registry: StatementRegistry;
  readonly parseCache: ParseCache;
  readonly statementMemory: StatementMemory;
  readonly bufferBudget: BufferBudget;
  /** Counts what the session does, for `GET /api/usage`. */
  readonly usage: OrganizationUsage;
  readonly processIds: ProcessIds;
  /** Set if the organization's `public` is another schema. */
  readonly rewriter: SchemaRewriter | undefined;
  /** Called when the session has ended, after its backend has been checked in or discarded. */
  ended(end: RelayEnd, failure?: unknown): void;
  readonly observe: Observe;
  /** Whether a backend process holds session advisory locks. */
  holdsAdvisoryLocks(processId: number): Promise<boolean>;
  /** Called when the defaults for new sessions have changed: existing backends are not leased again. */
  defaultsChanged(): void;
}
