import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import type { ServerStatement } from '../../src/backend/session-state.ts';
import { type FrameScanner, latin1String, stringEnd } from '../../src/protocol/framing.ts';
import { FrontendType, queryText, statementNameStart } from '../../src/protocol/frontend.ts';
import { type SessionTraits, sessionTraitsOf } from '../../src/syntax/session-traits.ts';
import type { ClientStatements } from './client-statements.ts';

/** Lies before all batches. */
const NEVER = -1;

/** The last batch that changed something, and the last one before it. */
interface ChangingBatches {
  last: number;
  before: number;
}

interface NameChanges extends ChangingBatches {
  /** The batch in which each name was changed last. */
  readonly byName: Map<string, number>;
}

interface Deallocations extends ChangingBatches {
  /** The batch with an unanswered Execute that may deallocate all names; {@link NEVER} if there is none. */
  executeIn: number;
  /** Names defined since that Execute, as Latin-1. */
  givenSince: Set<string> | undefined;
}

function noteBatch(batches: ChangingBatches, batch: number): void {
  if (batch > batches.last) batches.before = batches.last;
  batches.last = batch;
}

/** The last batch before this one that changed something. */
function lastBefore(batches: ChangingBatches | undefined, batch: number): number {
  if (batches === undefined) return NEVER;
  return batches.last < batch ? batches.last : batches.before;
}

/**
 * Statement names that unanswered requests define or close. The requests up to a Sync are one batch: if one fails, the server
 * ignores the rest. So a later batch cannot know what a name refers to until the earlier one has been answered, nor whether
 * the server has the statement.
 */
export class PendingNames {
  readonly #statements: ClientStatements;
  readonly #queue: ReplyQueue;
  /** The changes of names. Most sessions never need these. */
  #named: NameChanges | undefined;
  /** The batch in which the unnamed statement was changed last. */
  #unnamed = NEVER;
  /** What may have deallocated all names; undefined for clients that never do that. Only this class sets it. */
  deallocations: Deallocations | undefined;
  /** The batch for whose end the client has to wait. */
  #awaited = NEVER;

  constructor(statements: ClientStatements, queue: ReplyQueue) {
    this.#statements = statements;
    this.#queue = queue;
  }

  /** The next message defines or closes a name (as Latin-1; empty: the unnamed statement). */
  changes(name: string): void {
    const { batch, oldestBatch } = this.#queue;
    if (name === '') {
      this.#unnamed = batch;
      return;
    }
    if (this.#named === undefined || this.#named.last < oldestBatch) this.#named = { last: NEVER, before: NEVER, byName: new Map() };
    this.#named.byName.set(name, batch);
    noteBatch(this.#named, batch);
  }

  /** The next message prepares a server statement. */
  prepares({ name }: ServerStatement): void {
    this.changes(name.toString('latin1'));
  }

  /** Whether an unanswered earlier batch prepares or closes this server statement. */
  isUnsettled({ name }: ServerStatement): boolean {
    const { batch, oldestBatch } = this.#queue;
    if (oldestBatch === batch) return false;
    const changed = this.#changedIn(name.toString('latin1'));
    return changed >= oldestBatch && changed < batch;
  }

  /** The next message may deallocate all names. */
  changesAll(): void {
    noteBatch(this.#deallocated(), this.#queue.batch);
  }

  #deallocated(): Deallocations {
    this.deallocations ??= { last: NEVER, before: NEVER, executeIn: NEVER, givenSince: undefined };
    return this.deallocations;
  }

  /** Whether an unanswered Execute may deallocate all names. */
  get mayAllBeGone(): boolean {
    return this.deallocations !== undefined && this.deallocations.executeIn !== NEVER;
  }

  /** The next message is an Execute that deallocates all names. */
  executesDeallocateAll(): void {
    const deallocations = this.#deallocated();
    deallocations.executeIn = this.#queue.batch;
    deallocations.givenSince = undefined;
  }

  /** The next message defines a name. */
  gives(name: string): void {
    const deallocations = this.deallocations;
    if (deallocations === undefined || deallocations.executeIn === NEVER) return;
    deallocations.givenSince ??= new Set();
    deallocations.givenSince.add(name);
  }

  /** Whether the next message in the batch cannot find the name: all names were deallocated, or the server ignores the message. */
  hasTaken(name: string): boolean {
    const deallocations = this.deallocations;
    return deallocations !== undefined && deallocations.executeIn === this.#queue.batch && deallocations.givenSince?.has(name) !== true;
  }

  /** All requests have been answered. */
  settled(): void {
    this.deallocations = undefined;
  }

  /** Whether the scanner's message refers to a name whose meaning depends on replies that have not arrived. */
  mustWait({ type, buffer, start, end, last }: FrameScanner): boolean {
    if (type === FrontendType.Query)
      return this.#awaits(this.#anyChanged) && last && speaksOfNames(sessionTraitsOf(queryText(buffer.subarray(start, end))));
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const isUnnamed = nameEnd === nameStart;
    if (
      type === FrontendType.Parse &&
      this.#awaits(this.#anyChanged) &&
      speaksOfNames(sessionTraitsOf(latin1String(buffer, nameEnd + 1, end)))
    )
      return true;
    if (isUnnamed && (type === FrontendType.Parse || type === FrontendType.Close)) return false;
    const name = buffer.toString('latin1', nameStart, nameEnd);
    const traits = (isUnnamed ? this.#statements.unnamed : this.#statements.get(name))?.traits;
    if (traits !== undefined && type === FrontendType.Bind && speaksOfNames(traits) && this.#awaits(this.#anyChanged)) return true;
    return this.#awaits(isUnnamed ? this.#unnamed : Math.max(this.#changedIn(name), this.#servedIn(name), this.#allChanged));
  }

  /** The last batch before the current one that changed any name. */
  get #anyChanged(): number {
    return Math.max(lastBefore(this.#named, this.#queue.batch), this.#allChanged);
  }

  /** The last batch before the current one that may have deallocated all names. */
  get #allChanged(): number {
    return lastBefore(this.deallocations, this.#queue.batch);
  }

  #changedIn(name: string): number {
    return this.#named?.byName.get(name) ?? NEVER;
  }

  /** The batch in which the name's statement was prepared on the server. */
  #servedIn(name: string): number {
    const server = this.#statements.get(name)?.server;
    return server === undefined ? NEVER : this.#changedIn(server.name.toString('latin1'));
  }

  /** Makes the next message wait for all earlier batches. */
  waitForAll(): boolean {
    return this.#awaits(this.#queue.batch - 1);
  }

  /** The message that had to wait still has to. */
  get isWaiting(): boolean {
    return this.#isOwed(this.#awaited);
  }

  #awaits(batch: number): boolean {
    if (batch >= this.#queue.batch || !this.#isOwed(batch)) return false;
    this.#awaited = batch;
    return true;
  }

  /** During COPY FROM STDIN nothing waits, because the server needs the data to go on. */
  #isOwed(batch: number): boolean {
    return batch >= this.#queue.oldestBatch && !this.#queue.copyIn;
  }
}

/** DEALLOCATE ALL depends on no particular name. */
function speaksOfNames({ namesPrepared, deallocates, deallocatesAll }: SessionTraits): boolean {
  return namesPrepared || (deallocates && !deallocatesAll);
}
