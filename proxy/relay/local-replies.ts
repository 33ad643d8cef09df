import type { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { errorResponse } from '../errors.ts';
import type { Forwarding } from './forwarding.ts';
import { PARSE_COMPLETE, READY_IDLE } from './messages.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** A client's messages while it has no backend: answers those that need none, and those for which there was none. */
export class LocalReplies {
  readonly #requests: Forwarding;
  readonly #toClient: WriteBuffer;
  /** Why there was no backend for the request that comes next. */
  #refusal: ServiceError | undefined;
  #discardingUntilSync = false;

  constructor(requests: Forwarding, toClient: WriteBuffer) {
    this.#requests = requests;
    this.#toClient = toClient;
  }

  /** There was no backend for the request that comes next. */
  refuse(reason: ServiceError): void {
    this.#refusal = reason;
  }

  /** @returns false when the message has to go to a backend */
  answer(scanner: FrameScanner): boolean {
    // The rest of a message whose beginning went nowhere.
    if (!scanner.first) return true;
    switch (scanner.type) {
      case FrontendType.Sync:
        if (scanner.length > 0) return false;
        this.#toClient.insert(READY_IDLE);
        this.#discardingUntilSync = false;
        this.#refusal = undefined;
        return true;
      // After a COPY that has failed, as Postgres does.
      case FrontendType.CopyData:
      case FrontendType.CopyDone:
      case FrontendType.CopyFail:
      case FrontendType.Flush:
        return true;
      default:
        return this.#discardingUntilSync || this.#answerRefused(scanner) || this.#parseKnown(scanner);
    }
  }

  #answerRefused({ type }: FrameScanner): boolean {
    if (this.#refusal === undefined) return false;
    this.#toClient.insert(errorResponse(this.#refusal, 'ERROR'));
    this.#refusal = undefined;
    if (type === FrontendType.Query || type === FrontendType.FunctionCall) this.#toClient.insert(READY_IDLE);
    else this.#discardingUntilSync = true;
    return true;
  }

  #parseKnown(scanner: FrameScanner): boolean {
    const known = this.#requests.parseKnown(scanner);
    if (known) this.#toClient.insert(PARSE_COMPLETE);
    return known;
  }
}
