import type { BackendReceiver } from '../backend/connection.ts';
import { backendFrames } from '../protocol/framing.ts';
import { type ReplyHandler, ReplyReader } from '../protocol/reply-reader.ts';
import type { Slot } from './pipeline-slot.ts';

/** Only ReadyForQuery is read; all other messages are discarded as they arrive. */
const FRAMES = backendFrames({ Z: 1 });

/** The pipeline of the request that runs elsewhere now. */
interface PipelineOfReply {
  next(clean: boolean, rest: Buffer): void;
  stop(slot: Slot): void;
  lost(cancelFailed: boolean): void;
}

/** Takes the place of a slot whose request runs elsewhere: discards its reply, and cancels the request if that takes long. */
export class AbandonedSlot implements Slot, BackendReceiver, ReplyHandler {
  readonly holdsChunk = false;
  readonly canRunAgain = false;
  readonly #shared: PipelineOfReply;
  readonly #reader = new ReplyReader(FRAMES, this);

  constructor(shared: PipelineOfReply) {
    this.#shared = shared;
  }

  get receiver(): BackendReceiver {
    return this;
  }

  slotStarted(): void {}

  stalled(): void {
    this.#shared.stop(this);
  }

  requeue(): boolean {
    return false;
  }

  takeOver(): void {}

  data(chunk: Buffer): void {
    const reader = this.#reader;
    try {
      reader.push(chunk);
      while (reader.next());
    } catch {
      this.closed();
    }
  }

  /** The reply has ended; what follows belongs to the next slot. */
  ready(): void {
    this.#shared.next(true, this.#reader.takeRest());
  }

  drain(): void {}

  closed(): void {
    this.#shared.lost(false);
  }
}
