import type { BackendConnection } from '../../src/backend/connection.ts';
import type { ServiceError } from '../../src/errors.ts';
import type { Multiplexer } from '../../src/multiplex/multiplexer.ts';
import type { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import type { Lease } from '../../src/router/lease.ts';
import type { Wait } from '../../src/router/router.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import type { WatchListener } from '../inspection/ddl-audit.ts';
import type { ProcessIds } from '../pinning/process-ids.ts';
import type { ParseCache } from '../prepared/parse-cache.ts';
import type { StatementMemory } from '../prepared/statement-memory.ts';
import type { BufferBudget } from '../relay/buffer-budget.ts';

/** How a session ended, and what the client should be told if it can still be told anything. */
export interface RelayEnd {
  readonly reason: 'terminated' | 'client_gone' | 'backend_lost' | 'protocol_violation' | 'ended';
  readonly finalError?: Buffer;
}

/** What a session needs of the service. */
export interface SessionServices extends WatchListener {
  /** A backend at once, if one is free. */
  tryLease(preferred: BackendConnection | undefined): Lease | undefined;
  /** A backend as soon as there is one. */
  enqueue(settle: (result: Lease | ServiceError) => void): Wait;
  /** Whether a backend may be kept busy with more requests: nobody else is waiting for one, and (unless `mayGrow`) there can be no more. */
  mayKeepBusy(mayGrow: boolean): boolean;
  /** Hears of each request that goes into a busy backend's pipeline, and of each that has to be run again because of that. */
  shared(outcome: 'shared' | 'requeued'): void;
  /** What this session shares backends by with others of its organization. */
  readonly multiplexer: Multiplexer;
  readonly registry: StatementRegistry;
  readonly recent: ParseCache;
  readonly kept: StatementMemory;
  readonly held: BufferBudget;
  readonly processIds: ProcessIds;
  /** Where the organization's `public` is another schema. */
  readonly view: SchemaRewriter | undefined;
  /** Hears of each request of the client's that has been answered up to its ReadyForQuery. @param sqlstate of its first error */
  answered(sqlstate: string | undefined): void;
  /** Hears that either side has ended the session, or the service, once everything has been checked in, or could not be. */
  ended(end: RelayEnd, failure?: unknown): void;
  /** Hears of what should not have happened, of which the client is told as an internal error at most. */
  failed(cause: unknown): void;
  /** Whether a backend process holds session advisory locks. */
  holdsAdvisoryLocks(processId: number): Promise<boolean>;
  /** What new sessions start with has changed: the sessions that there are become old. */
  defaultsChanged(): void;
}
