import type { BackendReceiver } from '../../src/backend/connection.ts';
import { DISCARD_CANCEL_AFTER_MS } from '../../src/multiplex/shareable-sql.ts';
import { BackendType } from '../../src/protocol/backend.ts';
import { backendFrames, FrameScanner } from '../../src/protocol/frame.ts';

/** How long a backend may take to obey a cancel request before all that is in its pipeline is given up. */
export const OBEY_TIMEOUT_MS = 5_000;

const FRAMES = backendFrames({ Z: 1 });

/** The pipeline in which the reply is due. */
interface PipelineOfReply {
  next(clean: boolean): void;
  deliver(bytes: Buffer): void;
  cancel(slot: AbandonedSlot): Promise<void>;
  lost(disobeyed: boolean): void;
}

/** Has the turn of one that has gone elsewhere: reads its answer up to the end, for nobody, and has it canceled if that is far. */
export class AbandonedSlot implements BackendReceiver {
  readonly canRequeue = true;
  readonly holdsChunk = false;
  readonly #shared: PipelineOfReply;
  readonly #scanner = new FrameScanner(FRAMES);
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: PipelineOfReply) {
    this.#shared = shared;
  }

  get receiver(): BackendReceiver {
    return this;
  }

  slotStarted(): void {
    this.#timer = setTimeout(() => {
      void this.#shared.cancel(this);
      this.#timer = setTimeout(() => this.#shared.lost(true), OBEY_TIMEOUT_MS);
    }, DISCARD_CANCEL_AFTER_MS);
  }

  requeue(): boolean {
    return false;
  }

  takeOver(): void {}

  data(chunk: Buffer): void {
    const shared = this.#shared;
    const scanner = this.#scanner;
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (!scanner.first || scanner.type !== BackendType.ReadyForQuery) continue;
        clearTimeout(this.#timer);
        // The chunk may be read into again, and the next one may have to keep what is its own.
        const next = Buffer.from(scanner.takeRest());
        shared.next(true);
        if (next.length > 0) shared.deliver(next);
        return;
      }
    } catch {
      this.closed();
    }
  }

  drain(): void {}

  closed(): void {
    clearTimeout(this.#timer);
    this.#shared.lost(false);
  }
}
