import type { BackendConnection, BackendReceiver } from '../src/backend/connection.ts';
import { Fate, type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import type { Lease } from '../src/router/lease.ts';
import { queryMessage } from './messages.ts';
import type { Pins } from './pins.ts';
import type { RelayHost } from './relay-host.ts';
import type { OwnRequest } from './replies.ts';
import { Run } from './run.ts';
import { settingsChange } from './session-settings.ts';
import { StateProbe } from './state-probe.ts';

const DISCARD_SEQUENCES = queryMessage('DISCARD SEQUENCES');

/** The session that has backends one after another. */
export interface Tenant {
  readonly host: RelayHost;
  readonly pins: Pins;
  readonly queue: ReplyQueue;
  /** Hears what the backend at hand says; also who the session is, by identity. */
  readonly receiver: BackendReceiver;
}

/**
 * A session's hold on a backend: borrowed with the first request of a transaction, given this session's settings, and given
 * back when nothing that belongs to the session is left on it.
 */
export class Tenure {
  /** What goes to the backend at hand. */
  readonly out = new Run((bytes) => this.#lease?.backend.write(bytes));
  readonly #tenant: Tenant;
  #lease: Lease | undefined;
  #lastBackend: BackendConnection | undefined;
  /** The backend was another client's before, and this one has moved no sequence since. */
  #sequencesAreOthers = false;
  /** The client has asked nothing yet of the backend at hand. */
  #untouched = false;
  #canceling: Promise<void> | undefined;
  #cancelWanted = false;

  constructor(tenant: Tenant) {
    this.#tenant = tenant;
  }

  get lease(): Lease | undefined {
    return this.#lease;
  }

  get backend(): BackendConnection | undefined {
    return this.#lease?.backend;
  }

  /** Takes a backend if one is free, the last one before others. */
  tryBegin(): BackendConnection | undefined {
    const lease = this.#tenant.host.tryLease(this.#lastBackend);
    if (lease !== undefined) this.begin(lease);
    return lease?.backend;
  }

  /** Takes a backend and gives it the session's settings, ahead of the first request and in the same write. */
  begin(lease: Lease): void {
    const { pins, receiver, host } = this.#tenant;
    const { backend } = lease;
    const { session } = backend;
    this.#lease = lease;
    backend.attach(receiver);
    backend.resume();
    this.#lastBackend = backend;
    this.#untouched = true;
    const change = settingsChange(session.settings, pins.settings);
    session.settings = pins.settings;
    if (change !== undefined) this.ask(queryMessage(change), { own: 'settings' });
    this.#sequencesAreOthers = session.lastUser !== undefined && session.lastUser !== receiver;
    if (session.lastUser === receiver) return;
    host.processIds.moved(backend.processId);
    session.lastUser = receiver;
  }

  /** The client has sent something. */
  touched(): void {
    this.#untouched = false;
  }

  sequencesMoved(): void {
    this.#sequencesAreOthers = false;
  }

  /** What another client's statements got from a sequence is not this one's to see. */
  beforeSequenceRead(): void {
    if (!this.#sequencesAreOthers || !this.#untouched) return;
    this.#sequencesAreOthers = false;
    this.ask(DISCARD_SEQUENCES, { own: 'settings' });
  }

  /** Sends a request of ours, of which the client hears nothing. It does away with the unnamed statement. */
  ask(message: Buffer, request: OwnRequest): void {
    const session = this.backend?.session;
    if (session !== undefined) session.unnamed = undefined;
    this.#tenant.queue.push(Request.query, Fate.skip, request);
    this.out.insert(message);
  }

  /**
   * Finds out what is left of the session on an idle backend, and restores the session's settings there.
   * @param again called when it is worth asking again
   * @returns whether all is known and as it should be; if not, the answer to a request of ours is under way
   */
  isSettled(again: () => void): boolean {
    const { pins, queue } = this.#tenant;
    if (pins.suspected || queue.doubtful) {
      pins.suspected = false;
      const probe = new StateProbe(pins.customSettings);
      this.ask(probe.message, { own: 'probe', probe });
    } else if (pins.lockCheckDue) {
      this.#checkLocks(again);
      return false;
    } else {
      const change = this.#settingsToRestore();
      if (change === undefined) return true;
      this.ask(queryMessage(change), { own: 'settings' });
    }
    this.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to what the session started with, which is more than the server knows. */
  #settingsToRestore(): string | undefined {
    const { settings } = this.#tenant.pins;
    const session = this.backend?.session;
    if (session === undefined || session.settings === settings) return undefined;
    const change = settingsChange(session.settings, settings);
    session.settings = settings;
    return change;
  }

  #checkLocks(again: () => void): void {
    const { pins, host, queue } = this.#tenant;
    const lease = this.#lease;
    pins.lockCheckDue = false;
    void host.holdsAdvisoryLocks(this.backend?.processId ?? 0).then(
      (held) => {
        pins.locksHeld(held);
        if (this.#lease === lease && queue.length === 0) again();
      },
      () => {},
    );
  }

  /** Gives an idle backend back on which nothing of the session is left. */
  end(): void {
    const lease = this.#letGo();
    const { pins, host } = this.#tenant;
    if (pins.defaultsChanged) {
      pins.defaultsChanged = false;
      host.defaultsChanged();
    }
    // A cancel request may still be on its way to this backend: nobody else gets it before it has arrived.
    if (this.#canceling === undefined) void lease?.release(true);
    else void this.#canceling.then(() => lease?.release(true));
  }

  #letGo(): Lease | undefined {
    const lease = this.#lease;
    this.#lease = undefined;
    lease?.backend.detach();
    return lease;
  }

  /** Cancels what the backend runs for the client. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    const { queue } = this.#tenant;
    if (this.#lease === undefined || queue.length === 0) return;
    // A request of ours is running: the client's own is behind it.
    if (queue.answeringOurs && this.#canceling === undefined) {
      this.#cancelWanted = true;
      return;
    }
    this.#canceling ??= this.#lease.cancel().finally(() => {
      this.#canceling = undefined;
    });
    await this.#canceling;
  }

  /** Once the server answers the client's own request again, and not one of ours ahead of it. */
  cancelIfWanted(): void {
    if (!this.#cancelWanted || this.#tenant.queue.answeringOurs) return;
    this.#cancelWanted = false;
    void this.cancel();
  }

  /**
   * The session is over. An idle backend goes back, cleaned of what the session left; one that is busy, or in a
   * transaction, is told to stop and dropped.
   * @param disobeyed what it runs does not end when it is canceled
   */
  async giveUp(idle: boolean, disobeyed: boolean): Promise<void> {
    const lease = this.#letGo();
    if (lease === undefined) return;
    const { pins } = this.#tenant;
    if (this.#canceling !== undefined) await this.#canceling;
    if (idle && pins.indelible) return lease.destroy();
    if (idle) return lease.release(!pins.holdsState);
    if (disobeyed) return lease.terminate();
    await lease.cancel();
    lease.destroy();
  }
}
