import { randomInt } from 'node:crypto';
import { ConnectionCount, type OpenCountLimit } from '../../src/runtime/count-limit.ts';
import { IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { ClientConnection } from '../client-connection.ts';
import { errorResponse, tooManyClients } from '../errors.ts';

/**
 * The connections that are not authenticated yet. If there are too many, a random one is closed for each that comes. Real clients have
 * mostly logged in before they can be hit.
 */
export class UnauthenticatedClients {
  readonly #clients = new IndexedSet<ClientConnection>();
  readonly #count: ConnectionCount<ClientConnection>;

  constructor(limit: OpenCountLimit) {
    this.#count = new ConnectionCount(limit, {
      evict: (isCounted) => this.#evict(isCounted),
      refuse: (client) => this.#refuse(client),
    });
  }

  get size(): number {
    return this.#clients.size;
  }

  all(): readonly ClientConnection[] {
    return this.#clients.all();
  }

  has(client: ClientConnection): boolean {
    return this.#clients.at(client.index) === client;
  }

  add(client: ClientConnection): void {
    this.#clients.add(client);
    this.#count.came(client);
  }

  /** @returns whether it was there */
  delete(client: ClientConnection): boolean {
    // Its index may be that in another set.
    if (!this.has(client)) return false;
    this.#clients.delete(client);
    this.#count.left(client);
    return true;
  }

  #evict(isCounted: (client: ClientConnection) => boolean): boolean {
    const { size } = this.#clients;
    const start = size > 0 ? randomInt(size) : 0;
    for (let n = 0; n < size; n += 1) {
      const client = this.#clients.at((start + n) % size);
      if (client === undefined || !isCounted(client)) continue;
      this.#refuse(client);
      return true;
    }
    return false;
  }

  /** Sends the reason and closes the connection without waiting for the client to read it. */
  #refuse(client: ClientConnection): void {
    client.write(errorResponse(tooManyClients(), 'FATAL'));
    client.destroy();
    this.delete(client);
  }
}
