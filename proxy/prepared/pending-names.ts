import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { latin1String, stringEnd } from '../../src/protocol/body.ts';
import { FrontendType, statementNameStart } from '../../src/protocol/frontend.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import { type SessionTraits, sessionTraitsOf } from '../../src/syntax/traits/session-traits.ts';
import { queryText } from '../multiplex/shareable-request.ts';
import type { ClientStatements } from './client-statements.ts';

/** Lies before all batches. */
const NEVER = -1;

/**
 * Statement names that unanswered requests define or close. The requests up to a Sync are one batch: if one fails, the server
 * ignores the rest. So a later batch cannot know what a name refers to until the earlier one has been answered, nor whether
 * the server has the statement.
 */
export class PendingNames {
  readonly #statements: ClientStatements;
  readonly #queue: ReplyQueue;
  /** The batch in which each name was changed last. Most sessions never need this map. */
  #named: Map<string, number> | undefined;
  /** The last batch that changed any name, and the last one before it. */
  #anyNamed = NEVER;
  #anyNamedBefore = NEVER;
  #unnamed = NEVER;
  /** The last batch that may have deallocated all names, and the last one before it. */
  #all = NEVER;
  #allBefore = NEVER;
  /** The batch for whose end the client has to wait. */
  #awaited = NEVER;
  /** The batch with an unanswered Execute that may deallocate all names; {@link NEVER} if there is none. */
  #deallocatedIn = NEVER;
  /** Names defined since that Execute, as Latin-1. */
  #givenSince: Set<string> | undefined;

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
    if (this.#named === undefined || this.#anyNamed < oldestBatch) this.#named = new Map();
    this.#named.set(name, batch);
    if (batch > this.#anyNamed) this.#anyNamedBefore = this.#anyNamed;
    this.#anyNamed = batch;
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
    const { batch } = this.#queue;
    if (batch > this.#all) this.#allBefore = this.#all;
    this.#all = batch;
  }

  /** Whether an unanswered Execute may deallocate all names. */
  get mayAllBeGone(): boolean {
    return this.#deallocatedIn !== NEVER;
  }

  /** The next message is an Execute that deallocates all names. */
  executesDeallocateAll(): void {
    this.#deallocatedIn = this.#queue.batch;
    this.#givenSince = undefined;
  }

  /** The next message defines a name. */
  gives(name: string): void {
    if (!this.mayAllBeGone) return;
    this.#givenSince ??= new Set();
    this.#givenSince.add(name);
  }

  /** Whether the next message in the batch cannot find the name: all names were deallocated, or the server ignores the message. */
  hasTaken(name: string): boolean {
    return this.mayAllBeGone && this.#deallocatedIn === this.#queue.batch && this.#givenSince?.has(name) !== true;
  }

  /** All requests have been answered. */
  settled(): void {
    this.#deallocatedIn = NEVER;
    this.#givenSince = undefined;
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
    const { batch } = this.#queue;
    const named = this.#anyNamed < batch ? this.#anyNamed : this.#anyNamedBefore;
    return Math.max(named, this.#allChanged);
  }

  /** The last batch before the current one that may have deallocated all names. */
  get #allChanged(): number {
    return this.#all < this.#queue.batch ? this.#all : this.#allBefore;
  }

  #changedIn(name: string): number {
    return this.#named?.get(name) ?? NEVER;
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
