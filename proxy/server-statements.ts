import type { BackendConnection } from '../src/backend/connection.ts';
import { Fate, Request } from '../src/backend/owed-replies.ts';
import type { ServerStatement } from '../src/backend/prepared-statements.ts';
import type { ReplyQueue } from '../src/backend/reply-queue.ts';
import type { ClientStatements } from './client-statements.ts';
import { closeStatementMessage, DISCARD_SEQUENCES, EMPTY_DEFINITION, parseMessage, SYNC } from './messages.ts';
import type { Run } from './run.ts';
import { deallocatedNames, type TextTraits } from './statement-text.ts';
import type { UnsettledNames } from './unsettled-names.ts';

const NO_NAME = Buffer.alloc(0);

/**
 * Sees to it that the backend at hand has prepared what a client's next request speaks of, and nothing that would stand in
 * its way. What is sent for that is ours, and skipped in the replies.
 */
export class ServerStatements {
  readonly #statements: ClientStatements;
  readonly #names: UnsettledNames;
  readonly #queue: ReplyQueue;
  readonly #out: Run;
  /** The names under which the client's own statements have been prepared in a batch, and in which. */
  #materialized: Set<string> | undefined;
  #materializedIn = 0;

  constructor(statements: ClientStatements, names: UnsettledNames, queue: ReplyQueue, out: Run) {
    this.#statements = statements;
    this.#names = names;
    this.#queue = queue;
    this.#out = out;
  }

  /**
   * The server knows what the client wants to deallocate by another name, and may not have it at all: an empty statement
   * takes its place, which nothing can keep from being prepared.
   * @returns the names, as the client knows them
   */
  standIns(text: string, traits: TextTraits, backend: BackendConnection): string[] {
    const names = traits.deallocates ? deallocatedNames(text).filter((name) => this.#statements.get(name) !== undefined) : [];
    for (const name of names) this.take(name, backend);
    return names;
  }

  /** Has an empty statement under a name of the client's. */
  take(name: string, backend: BackendConnection): void {
    this.#materialized?.delete(name);
    this.#prepareAs(name, EMPTY_DEFINITION, backend);
  }

  /**
   * Prepares the client's statements under its own names, for SQL that speaks of them (EXECUTE, pg_prepared_statements);
   * they are closed before the next request. Each fails by itself, e.g. when its table is gone, where that can be had.
   * @param alone nothing else that is prepared may be seen
   * @param isApart what comes next does not belong to requests that have been sent before
   */
  materialize(backend: BackendConnection, alone: boolean, isApart: boolean): void {
    const { leftovers, prepared } = backend.session;
    if (alone) {
      for (const { name } of prepared) leftovers.add(name.toString('latin1'));
      prepared.clear();
      this.closeLeftovers(backend);
    }
    const there = isApart || alone || this.#materializedIn !== this.#queue.batch ? undefined : this.#materialized;
    const names = new Set<string>();
    for (const [name, { server }] of this.#statements.entries()) {
      names.add(name);
      if (there?.has(name)) continue;
      this.#prepareAs(name, server.definition, backend);
      if (!isApart) continue;
      this.#queue.push(Request.sync, Fate.skip);
      this.#out.insert(SYNC);
    }
    this.#materialized = names;
    this.#materializedIn = this.#queue.batch;
  }

  /**
   * Takes away what sequences gave to other sessions, amid whatever the client has under way: neither its unnamed statement
   * nor its portals are touched.
   * @param isApart as of {@link materialize}
   */
  discardSequences(backend: BackendConnection, isApart: boolean): void {
    const { session } = backend;
    const undo = () => {
      session.hasOthersSequenceValues = true;
    };
    session.hasOthersSequenceValues = false;
    this.#queue.push(Request.parse, Fate.skip, { undo });
    for (const kind of [Request.bind, Request.execute, Request.close, Request.close]) this.#queue.push(kind, Fate.skip);
    this.#out.insert(DISCARD_SEQUENCES);
    if (!isApart) return;
    this.#queue.push(Request.sync, Fate.skip);
    this.#out.insert(SYNC);
  }

  /** Under a name of the client's, which the next request will not find any more. */
  #prepareAs(name: string, definition: Buffer, backend: BackendConnection): void {
    const own = Buffer.from(name, 'latin1');
    this.#queue.push(Request.close, Fate.skip);
    this.#out.insert(closeStatementMessage(own));
    this.#queue.push(Request.parse, Fate.skip);
    this.#out.insert(parseMessage(own, definition));
    backend.session.leftovers.add(name);
  }

  /** Whatever another client left as the unnamed statement must not answer for this one's. */
  ensureUnnamed(backend: BackendConnection): void {
    const { unnamed: wanted } = this.#statements;
    if (backend.session.unnamed === wanted && wanted !== undefined) return;
    const unnamed = wanted?.isOversized ? undefined : wanted;
    backend.session.unnamed = unnamed;
    this.#names.changes('');
    if (unnamed === undefined) {
      this.#queue.push(Request.close, Fate.skip);
      this.#out.insert(closeStatementMessage(NO_NAME));
    } else {
      const undo = () => {
        backend.session.unnamed = undefined;
      };
      this.#queue.push(Request.parse, Fate.skip, { undo });
      this.#out.insert(parseMessage(NO_NAME, unnamed.definition));
    }
  }

  ensurePrepared(statement: ServerStatement, backend: BackendConnection): void {
    if (backend.session.prepared.use(statement)) return;
    this.closeIfLeft(statement.name, backend);
    const { prepared } = backend.session;
    const evicted = prepared.add(statement);
    this.#names.prepares(statement);
    const effect = { undo: () => prepared.delete(statement), redo: () => prepared.addAgain(statement), statement };
    this.#queue.push(Request.parse, Fate.skip, effect);
    this.#out.insert(parseMessage(statement.name, statement.definition));
    this.evict(evicted, backend);
  }

  evict(statements: readonly ServerStatement[], backend: BackendConnection): void {
    for (const statement of statements) this.closeOnServer(statement, backend);
  }

  closeOnServer(statement: ServerStatement, backend: BackendConnection): void {
    this.#close(statement.name.toString('latin1'), backend, () => backend.session.prepared.delete(statement));
  }

  /** Where it may not come to that, it is still there, and in the way. */
  #close(name: string, { session }: BackendConnection, redo?: () => void): void {
    this.#names.changes(name);
    this.#queue.push(Request.close, Fate.skip, { undo: () => session.leftovers.add(name), redo });
    this.#out.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
  }

  /** What only stands in the way under a name is not to be taken for what the client means. */
  closeIfLeft(name: Buffer, backend: BackendConnection): void {
    const { leftovers } = backend.session;
    if (leftovers.size === 0) return;
    const left = name.toString('latin1');
    if (leftovers.delete(left)) this.#close(left, backend);
  }

  /** Closes what only stands in the way, ahead of a request of the client's. */
  closeLeftovers(backend: BackendConnection): void {
    for (const name of backend.session.takeLeftovers()) this.#close(name, backend);
  }
}
