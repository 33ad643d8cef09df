import type { Socket } from 'node:net';

/** So much each of them may send: more than a login takes. */
const FREE_BYTES = 16_384;

/**
 * Clients of whom it is not known yet who they are. Nobody can tell what is in a frame before all of it is there, and honest
 * clients send their first statement, whatever its size, in one frame with their login: so there is room for large ones, which
 * all of them share.
 */
export class UnauthenticatedBudget {
  #room: number;

  /** @param room in bytes, for what is more than a login */
  constructor(room: number) {
    this.#room = room;
  }

  /**
   * @param crowdedOut called where there is no room for what has come from it
   * @returns to be called when it is known who it is
   */
  add(socket: Socket, crowdedOut: () => void): () => void {
    let free = FREE_BYTES;
    let taken = 0;
    const came = ({ length }: Buffer) => {
      free -= length;
      if (free >= 0) return;
      taken -= free;
      this.#room += free;
      free = 0;
      if (this.#room >= 0) return;
      known();
      crowdedOut();
    };
    const known = () => {
      socket.off('data', came);
      socket.off('close', known);
      this.#room += taken;
      taken = 0;
    };
    socket.on('data', came);
    socket.on('close', known);
    return known;
  }
}
