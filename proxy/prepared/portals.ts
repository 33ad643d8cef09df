import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { latin1String } from '../../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { CLOSE_UNNAMED_PORTAL } from '../../src/protocol/frontend-encoder.ts';
import type { SqlTraits } from '../inspection/sql-traits.ts';
import type { WriteBuffer } from '../relay/write-buffer.ts';

/** What is to be known of the portals that a client binds, when it executes them. */
export class Portals {
  readonly #queue: ReplyQueue;
  readonly #out: WriteBuffer;
  /** A Bind has made the unnamed portal since the last Query or Sync, or everything up to the next Sync is thrown away. */
  #bindsUnnamed = false;
  /** The portal that would take all prepared statements away. */
  #deallocatesAll: string | undefined;
  /** The portal that was bound last, if it shows the search path. */
  #showsSearchPath: string | undefined;

  constructor(queue: ReplyQueue, out: WriteBuffer) {
    this.#queue = queue;
    this.#out = out;
  }

  /** @param traits of the statement that the Bind is of, where it is known */
  bound(bind: FrameScanner, traits: SqlTraits | undefined): void {
    if (traits?.deallocatesAll === true) this.#deallocatesAll = portalName(bind);
    else if (this.deallocatesAll(bind)) this.#deallocatesAll = undefined;
    this.#showsSearchPath = traits?.showsSearchPath === true ? portalName(bind) : undefined;
  }

  /** A Bind is on its way, whatever it is of. */
  binds({ buffer, start }: FrameScanner): void {
    this.#bindsUnnamed ||= buffer[start + HEADER_BYTES] === 0;
  }

  /** A Query or Sync does away with the unnamed portal. */
  end(): void {
    this.#bindsUnnamed = false;
  }

  deallocatesAll(execute: FrameScanner): boolean {
    return this.#deallocatesAll !== undefined && portalName(execute) === this.#deallocatesAll;
  }

  showsSearchPath(execute: FrameScanner): boolean {
    return this.#showsSearchPath !== undefined && portalName(execute) === this.#showsSearchPath;
  }

  /**
   * A Query that fails inside a transaction leaves an unnamed portal behind whose plan has been freed: to execute that
   * crashes the server (seen with PostgreSQL 15.20 and 18.4), and every organization's sessions with it. Where that may be
   * what a client is about to do, the portal is closed first.
   */
  guard(): void {
    const queue = this.#queue;
    if (this.#bindsUnnamed || queue.copyIn || !(queue.danglingPortal || queue.owesQuery)) return;
    queue.push(Request.close, Disposition.skip);
    this.#out.insert(CLOSE_UNNAMED_PORTAL);
  }
}

/** Of a Bind or an Execute, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
