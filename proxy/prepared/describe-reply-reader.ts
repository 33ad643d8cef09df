import { Buffer } from 'node:buffer';
import type { ServerStatement } from '../../src/backend/session-state.ts';
import { BackendType, decodeTextRow, type StatementShape, statementShape, UNKNOWN_SHAPE } from '../../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/framing.ts';
import type { UnnamedStatement } from './client-statements.ts';

/** A Describe whose reply the client's next message waits for, and what that message finds when it is handled again. */
export interface ShapeQuestion {
  readonly reply: DescribeReply;
  /** The server statement of the name that the message uses. */
  named: { readonly name: string; readonly server: ServerStatement } | undefined;
  /** The statement, if the backend has described it differently from what clients were told. */
  changed: object | undefined;
}

/** Stands beside a Describe in the reply queue, and reads its reply. */
export class DescribeReply {
  readonly own = 'shape';
  /** The client's next request waits for the reply. */
  readonly isAwaited: boolean;
  readonly #told: (shape: StatementShape) => void;
  /** Undefined for a portal. */
  #parameters: Buffer | undefined;
  #shape: StatementShape | undefined;
  #isOver = false;

  /** @param told is called with the statement's shape, unless the Describe fails or is ignored */
  constructor(told: (shape: StatementShape) => void, isAwaited = false) {
    this.#told = told;
    this.isAwaited = isAwaited;
  }

  /** The reply has arrived, or never will. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Reads a ParameterDescription, then a RowDescription or NoData. A message that is too long is incomplete. */
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

/** As {@link DescribeReply}, for the question how the server reads strings. It stands beside the last message of the question. */
export class StringsReply extends DescribeReply {
  areStandard = true;

  constructor(told: (areStandard: boolean) => void) {
    super(() => told(this.areStandard), true);
  }

  /** @param body of a DataRow */
  row(body: Buffer): void {
    this.areStandard = decodeTextRow(body, 0)[0] !== 'off';
  }
}

/** Records the shape that the client is told of its unnamed statement, which may be prepared on another backend later. */
export function shapeOf(unnamed: UnnamedStatement, batch: number): DescribeReply {
  unnamed.describedIn = batch;
  return new DescribeReply((shape) => {
    if (unnamed.shape?.parametersDigest === undefined) unnamed.shape = shape;
  });
}

interface DescribingSession {
  readonly statements: { readonly unnamed: UnnamedStatement | undefined };
  readonly replies: { readonly batch: number };
}

/** As {@link shapeOf}, for a Describe of the unnamed portal. */
export function shapeOfPortal(
  { statements: { unnamed }, replies: { batch } }: DescribingSession,
  { buffer, start, end }: FrameScanner,
): DescribeReply | undefined {
  const nameStart = start + HEADER_BYTES + 1;
  const isOfUnnamed = unnamed?.hasPortal === true && unnamed.server === undefined && unnamed.shape === undefined;
  if (!isOfUnnamed || nameStart >= end || buffer[nameStart - 1] !== PORTAL || buffer[nameStart] !== 0) return undefined;
  unnamed.describedIn = batch;
  return new DescribeReply((shape) => {
    if (shape !== UNKNOWN_SHAPE) unnamed.shape ??= shape;
  });
}

/** What a Describe is about. */
const PORTAL = 0x50;
