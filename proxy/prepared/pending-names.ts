import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { latin1String, stringEnd } from '../../src/protocol/body.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import { FrontendType, statementNameStart } from '../../src/protocol/frontend.ts';
import { type SqlTraits, traitsOf } from '../../src/syntax/traits/sql-traits.ts';
import { queryText } from '../multiplex/shareable-request.ts';
import type { ClientStatements } from './client-statements.ts';

/** Before all. */
const NEVER = -1;

/**
 * Names of statements that requests give or take away that have not been answered yet. Those up to the next Sync stand and fall together; what
 * comes behind it cannot know what a name stands for until they have been answered: one of them may have failed, and the
 * others been thrown away. Nor whether the server has been given what it stands for.
 */
export class PendingNames {
  readonly #statements: ClientStatements;
  readonly #queue: ReplyQueue;
  /** In which batch each was changed last. Most sessions never have any. */
  #named: Map<string, number> | undefined;
  /** In which batch any of them was, and in which before that. */
  #anyNamed = NEVER;
  #anyNamedBefore = NEVER;
  #unnamed = NEVER;
  /** In which batch all may have been taken away, and in which before that. */
  #all = NEVER;
  #allBefore = NEVER;
  /** Up to the end of which batch the client has to wait. */
  #awaited = NEVER;
  /** In which batch an Execute may take all away, once what is ahead in it has been done; {@link NEVER}: it has been answered. */
  #deallocatedIn = NEVER;
  /** Names given again since, as Latin-1. */
  #givenSince: Set<string> | undefined;

  constructor(statements: ClientStatements, queue: ReplyQueue) {
    this.#statements = statements;
    this.#queue = queue;
  }

  /** What is sent next gives a name (as Latin-1) to another statement, or to none; empty: the statement without a name. */
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

  /** What is sent next gives the server a statement that it has not had before. */
  prepares({ name }: ServerStatement): void {
    this.changes(name.toString('latin1'));
  }

  /** Whether it is not known yet that the server has what it was given before the last Sync. */
  isUnsettled({ name }: ServerStatement): boolean {
    const { batch, oldestBatch } = this.#queue;
    if (oldestBatch === batch) return false;
    const changed = this.#changedIn(name.toString('latin1'));
    return changed >= oldestBatch && changed < batch;
  }

  /** What is sent next may take all names away. */
  changesAll(): void {
    const { batch } = this.#queue;
    if (batch > this.#all) this.#allBefore = this.#all;
    this.#all = batch;
  }

  /** An Execute may take all names away: until it has been answered, nobody knows whether they are there. */
  get mayAllBeGone(): boolean {
    return this.#deallocatedIn !== NEVER;
  }

  /** What takes all names away is executed next. */
  executesDeallocateAll(): void {
    this.#deallocatedIn = this.#queue.batch;
    this.#givenSince = undefined;
  }

  /** A statement is given a name. */
  gives(name: string): void {
    if (!this.mayAllBeGone) return;
    this.#givenSince ??= new Set();
    this.#givenSince.add(name);
  }

  /** Whether what comes next in the batch does not find that name: either all have been taken away, or it is thrown away itself. */
  hasTaken(name: string): boolean {
    return this.mayAllBeGone && this.#deallocatedIn === this.#queue.batch && this.#givenSince?.has(name) !== true;
  }

  /** All that was asked has been answered. */
  settled(): void {
    this.#deallocatedIn = NEVER;
    this.#givenSince = undefined;
  }

  /** Whether the message that the scanner stands at speaks of a name of which nobody knows yet what it stands for. */
  mustWait({ type, buffer, start, end, last }: FrameScanner): boolean {
    if (type === FrontendType.Query)
      return this.#awaits(this.#anyChanged) && last && speaksOfNames(traitsOf(queryText(buffer.subarray(start, end))));
    const nameStart = statementNameStart(buffer, start, end);
    const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
    if (nameEnd < 0) return false;
    const isUnnamed = nameEnd === nameStart;
    if (type === FrontendType.Parse && this.#awaits(this.#anyChanged) && speaksOfNames(traitsOf(latin1String(buffer, nameEnd + 1, end))))
      return true;
    if (isUnnamed && (type === FrontendType.Parse || type === FrontendType.Close)) return false;
    const name = buffer.toString('latin1', nameStart, nameEnd);
    const traits = (isUnnamed ? this.#statements.unnamed : this.#statements.get(name))?.traits;
    if (traits !== undefined && type === FrontendType.Bind && speaksOfNames(traits) && this.#awaits(this.#anyChanged)) return true;
    return this.#awaits(isUnnamed ? this.#unnamed : Math.max(this.#changedIn(name), this.#servedIn(name), this.#allChanged));
  }

  /** In which batch before the one that is being sent any of them was. */
  get #anyChanged(): number {
    const { batch } = this.#queue;
    const named = this.#anyNamed < batch ? this.#anyNamed : this.#anyNamedBefore;
    return Math.max(named, this.#allChanged);
  }

  /** In which batch before the one that is being sent all may have been taken away. */
  get #allChanged(): number {
    return this.#all < this.#queue.batch ? this.#all : this.#allBefore;
  }

  #changedIn(name: string): number {
    return this.#named?.get(name) ?? NEVER;
  }

  /** In which batch the server was given what the name stands for. */
  #servedIn(name: string): number {
    const server = this.#statements.get(name)?.server;
    return server === undefined ? NEVER : this.#changedIn(server.name.toString('latin1'));
  }

  /** Has what is sent next wait for all that has been asked before. */
  waitForAll(): boolean {
    return this.#awaits(this.#queue.batch - 1);
  }

  /** What had to wait has to wait on. */
  get isWaiting(): boolean {
    return this.#isOwed(this.#awaited);
  }

  #awaits(batch: number): boolean {
    if (batch >= this.#queue.batch || !this.#isOwed(batch)) return false;
    this.#awaited = batch;
    return true;
  }

  /** A COPY goes on with what comes. */
  #isOwed(batch: number): boolean {
    return batch >= this.#queue.oldestBatch && !this.#queue.copyIn;
  }
}

/** What takes all away, whatever there is, speaks of none. */
function speaksOfNames({ namesPrepared, deallocates, deallocatesAll }: SqlTraits): boolean {
  return namesPrepared || (deallocates && !deallocatesAll);
}
