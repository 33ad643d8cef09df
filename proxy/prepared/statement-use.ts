import type { BackendConnection } from '../../src/backend/connection.ts';
import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import { isSameShape } from '../../src/protocol/statement-shape.ts';
import type { NamedStatement } from './client-statements.ts';
import type { ParseMessages } from './parse-message.ts';
import type { ServerStatements } from './server-statements.ts';

/**
 * What a name of the client's stands for when it is used. A client decodes rows by the columns that it was told once: where
 * the statement has others by now, it is refused, as PostgreSQL refuses it whose tables have changed.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export class StatementUse {
  readonly #parses: ParseMessages;
  readonly #onServer: ServerStatements;
  /** What the name stands for whose use waits for an answer. */
  #asked: { readonly name: string; readonly server: ServerStatement } | undefined;

  constructor(parses: ParseMessages, onServer: ServerStatements) {
    this.#parses = parses;
    this.#onServer = onServer;
  }

  /** @returns what the backend knows it by, once it has it; `asked`, `changed`: as {@link ServerStatements.ensurePrepared} */
  begin(name: string, statement: NamedStatement, backend: BackendConnection): ServerStatement | 'asked' | 'changed' {
    const { isUsed = false } = statement;
    const server = this.#asked?.name === name ? this.#asked.server : this.#parses.standsFor(name, statement, backend);
    this.#asked = undefined;
    const { first = statement.server } = statement;
    let readiness = this.#onServer.ensurePrepared(server, backend, server !== first);
    if (readiness === 'ready' && server !== first && differs(server, first)) readiness = 'changed';
    if (readiness === 'ready') return server;
    if (readiness === 'asked') this.#asked = { name, server };
    if (readiness === 'asked' || isUsed) return readiness;
    // It has been told nothing of it: the statement is, to the client, as of now.
    const anew = this.#parses.standsAnew(name, statement);
    readiness = this.#onServer.ensurePrepared(anew, backend);
    return readiness === 'ready' ? anew : readiness;
  }
}

function differs({ shape }: ServerStatement, { shape: told }: ServerStatement): boolean {
  return shape !== undefined && told !== undefined && !isSameShape(shape, told);
}
