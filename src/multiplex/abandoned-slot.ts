import type { BackendReceiver } from '../backend/connection.ts';
import { BackendType } from '../protocol/backend.ts';
import { backendFrames, FrameScanner } from '../protocol/message-framing.ts';
import type { Slot } from './pipeline-slot.ts';

const FRAMES = backendFrames({ Z: 1 });

/** The pipeline of the request that runs elsewhere now. */
interface PipelineOfReply {
  next(clean: boolean, rest: Buffer): void;
  stop(slot: Slot): void;
  lost(cancelFailed: boolean): void;
}

/** Takes the place of a slot whose request runs elsewhere: discards its reply, and cancels the request if that takes long. */
export class AbandonedSlot implements Slot, BackendReceiver {
  readonly holdsChunk = false;
  readonly canRunAgain = false;
  readonly #shared: PipelineOfReply;
  readonly #scanner = new FrameScanner(FRAMES);

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
    const scanner = this.#scanner;
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (!scanner.first || scanner.type !== BackendType.ReadyForQuery) continue;
        this.#shared.next(true, scanner.takeRest());
        return;
      }
    } catch {
      this.closed();
    }
  }

  drain(): void {}

  closed(): void {
    this.#shared.lost(false);
  }
}
