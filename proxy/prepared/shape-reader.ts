import { Buffer } from 'node:buffer';
import { BackendType } from '../../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { type StatementShape, statementShape, UNKNOWN_SHAPE } from '../../src/protocol/statement-shape.ts';

/** Goes with a Describe of a statement through the reply queue, and reads its answer. */
export class ShapeReader {
  readonly own = 'shape';
  /** The client's next request waits for it. */
  readonly isAwaited: boolean;
  readonly #told: (shape: StatementShape) => void;
  #parameters = Buffer.alloc(0);
  #shape: StatementShape | undefined;
  #isOver = false;

  /** @param told called with what the statement is; not where the Describe fails, or is thrown away */
  constructor(told: (shape: StatementShape) => void, isAwaited = false) {
    this.#told = told;
    this.isAwaited = isAwaited;
  }

  /** There is nothing more to wait for. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** ParameterDescription, then RowDescription or NoData; one that is too long has not come whole. */
  read({ type, buffer, start, end, last }: FrameScanner): void {
    if (!last) this.#shape = UNKNOWN_SHAPE;
    const body = buffer.subarray(start + HEADER_BYTES, end);
    if (type === BackendType.ParameterDescription) this.#parameters = Buffer.from(body);
    else this.#shape ??= statementShape(this.#parameters, type === BackendType.NoData ? undefined : body);
  }

  done(): void {
    this.#isOver = true;
    this.#told(this.#shape ?? UNKNOWN_SHAPE);
  }

  dropped(): void {
    this.#isOver = true;
  }
}
