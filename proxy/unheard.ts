import type { BackendReceiver } from '../src/backend/connection.ts';
import { BackendType } from '../src/protocol/backend.ts';
import { backendFrames, FrameScanner } from '../src/protocol/frame.ts';
import type { SharedPipeline, Turn } from './shared-pipeline.ts';

const FRAMES = backendFrames({ Z: 1 });

/** Has the turn of one that has gone elsewhere: reads its answer up to the end, for nobody. */
export class Unheard implements Turn, BackendReceiver {
  readonly canStepBack = true;
  readonly holdsChunk = false;
  readonly #shared: SharedPipeline;
  readonly #scanner = new FrameScanner(FRAMES);

  constructor(shared: SharedPipeline) {
    this.#shared = shared;
  }

  get receiver(): BackendReceiver {
    return this;
  }

  turnBegins(): void {}

  stepAside(): boolean {
    return false;
  }

  data(chunk: Buffer): void {
    const shared = this.#shared;
    const scanner = this.#scanner;
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (!scanner.first || scanner.type !== BackendType.ReadyForQuery) continue;
        const rest = scanner.takeRest();
        // The chunk may be read into again, and the next one may have to keep what is its own.
        const next = Buffer.from(rest);
        shared.next(true);
        if (next.length > 0) shared.deliver(next);
        return;
      }
    } catch {
      shared.lost(false);
    }
  }

  drain(): void {}

  closed(): void {
    this.#shared.lost(false);
  }
}
