import type { Observe } from '../../observation.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { notifyOthers } from './notify-others.ts';

/** The channel on which processes ask each other to close an unused session of a server that has no connection slots free. */
export const SLOTS_CHANNEL = 'postern_slots';

/** Called when another process needs a slot of this cluster's server. */
export type SlotListener = (cluster: string) => void;

/**
 * Asks the other processes that share a control database for connection slots of a server: each may have more sessions than it uses,
 * while the server refuses one that another process needs.
 */
export class ConnectionSlotRequests {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  /** The clusters of which the others are being asked now. */
  readonly #asking = new Set<string>();
  #listener: SlotListener = () => {};

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  listen(listener: SlotListener): void {
    this.#listener = listener;
  }

  /** Does nothing while the others are being asked already. */
  ask(cluster: string): void {
    if (this.#asking.has(cluster)) return;
    this.#asking.add(cluster);
    void this.#send(cluster);
  }

  async #send(cluster: string): Promise<void> {
    try {
      await notifyOthers(this.#database, this.#own, SLOTS_CHANNEL, JSON.stringify({ from: this.#own, cluster }));
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'other processes could not be asked for connection slots', cause });
    } finally {
      this.#asking.delete(cluster);
    }
  }

  notified(payload: string): void {
    const { from, cluster } = parseRequest(payload);
    if (from !== this.#own && cluster !== undefined) this.#listener(cluster);
  }
}

/** @returns nothing for a payload of another version */
function parseRequest(payload: string): { readonly from?: unknown; readonly cluster?: string } {
  try {
    const { from, cluster }: { from?: unknown; cluster?: unknown } = JSON.parse(payload);
    return typeof cluster === 'string' ? { from, cluster } : {};
  } catch {
    return {};
  }
}
