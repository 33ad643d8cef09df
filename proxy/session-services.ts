import type { OrganizationUsage } from '../src/catalog/usage.ts';
import type { ServiceError } from '../src/errors.ts';
import type { Multiplexer } from '../src/multiplex/multiplexer.ts';
import type { StatementRegistry } from '../src/multiplex/statement-registry.ts';
import type { Observe } from '../src/observation.ts';
import type { HeadBudget } from '../src/protocol/framing.ts';
import type { SchemaRewriter } from '../src/rewriting/rewriter.ts';
import type { Lease, Tenant } from '../src/router/lease.ts';
import type { Router, Wait } from '../src/router/router.ts';
import { type MemoryBounds, MemoryReservation } from '../src/runtime/memory-budget.ts';
import { type AuditListener, MAX_REWRITTEN_BYTES } from './audited-text.ts';
import type { FirstOptions } from './begun-transaction.ts';
import type { ParseCache, StatementMemory } from './client-statements.ts';
import type { Blockers, ProcessIds } from './process-ids.ts';

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
  readonly firstOptions: FirstOptions;
  readonly bufferBudget: BufferBudget;
  /** Counts what the session does, for `GET /api/usage`. */
  readonly usage: OrganizationUsage;
  readonly processIds: ProcessIds;
  /** Set if the organization's `public` is another schema. */
  readonly rewriter: SchemaRewriter | undefined;
  /** Called when the session has ended, after its backend has been checked in or discarded. */
  ended(end: RelayEnd, failure?: unknown): void;
  readonly observe: Observe;
  /** Of requests that take so long, their end is told; infinite: of none. */
  readonly tellsAfterMs: number;
  /** Called when such a request has been answered. @param isOfLastText it was that of the text sent last */
  answered(durationMs: number, sqlstate: string | undefined, isOfLastText: boolean): void;
  /** Whether a backend process holds session advisory locks. */
  holdsAdvisoryLocks(processId: number): Promise<boolean>;
  /** Looks for the sessions that views of activity show, in other processes. */
  lookForSessions(): Promise<void>;
  /** By whom the organization's sessions are blocked at the moment. @throws ServiceError `not_ready` */
  blockers(): Promise<Blockers>;
  /** Called when the defaults for new sessions have changed: existing backends are not leased again. */
  defaultsChanged(): void;
}

/**
 * The memory limit for messages that are incomplete, that wait for a backend or for being rewritten, or that the client has
 * not read: four of the largest messages for an organization, and sixteen in all.
 */
export const BUFFER_BOUNDS: MemoryBounds = { perOrganizationBytes: 4 * MAX_REWRITTEN_BYTES, allBytes: 16 * MAX_REWRITTEN_BYTES };

/** Counts the bytes held of messages from and to one client, against its organization's limit. */
export class BufferBudget extends MemoryReservation implements HeadBudget {
  /** Bytes of the client's input that are held; set by {@link fromClient}. */
  fromClientBytes = 0;

  mayGrow(bytes: number): boolean {
    return this.exhaustedBy(bytes) === undefined;
  }

  /** This many bytes of the client's input are held. */
  fromClient(bytes: number): void {
    const toClientBytes = this.bytes - this.fromClientBytes;
    this.fromClientBytes = bytes;
    this.resize(bytes + toClientBytes);
  }

  /** This many bytes of replies wait until the client reads them. */
  toClient(bytes: number): void {
    this.resize(bytes + this.fromClientBytes);
  }
}
