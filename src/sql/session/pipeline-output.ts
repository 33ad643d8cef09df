import type { BackendConnection } from '../../backend/connection.ts';
import { joinShort } from '../../runtime/bytes.ts';
import { closeStatement } from './extended-query-messages.ts';

/** The user of a backend's session over HTTP. Sessions are compared with it to see whether another has used the backend. */
const HTTP_USER = {};

/** Messages for a backend. All messages of one turn of the event loop go out in one write. */
export class PipelineOutput {
  readonly #backend: BackendConnection;
  #messages: Uint8Array[] = [];
  #isUntouched = true;
  #isClosed = false;

  constructor(backend: BackendConnection) {
    this.#backend = backend;
  }

  /** Nothing has been sent, so the session is as it was. */
  get isUntouched(): boolean {
    return this.#isUntouched;
  }

  /** Sends the messages at the end of this turn of the event loop. */
  write(messages: readonly Uint8Array[]): void {
    if (this.#messages.length === 0) queueMicrotask(() => this.#flush());
    this.#add(messages);
  }

  /** Sends the messages now. @param isFirst the backend is idle; else others of this turn may be written with them */
  writeNow(messages: readonly Uint8Array[], isFirst: boolean): void {
    this.#add(messages);
    for (const bytes of this.#take()) {
      if (isFirst) this.#backend.write(bytes);
      else this.#backend.writeSoon(bytes);
    }
  }

  /** Drops what has not been sent. */
  close(): void {
    this.#isClosed = true;
  }

  #add(messages: readonly Uint8Array[]): void {
    if (this.#isUntouched) this.#begin();
    this.#messages.push(...messages);
  }

  /** The unnamed statement of the session's last user is forgotten, and statements that nobody uses are closed. */
  #begin(): void {
    const { session } = this.#backend;
    this.#isUntouched = false;
    session.lastUser = HTTP_USER;
    session.unnamed = undefined;
    if (session.staleNames.size === 0) return;
    for (const name of session.takeStaleNames()) this.#messages.push(closeStatement(name));
  }

  #flush(): void {
    const writes = this.#take();
    if (!this.#isClosed) for (const bytes of writes) this.#backend.write(bytes);
  }

  #take(): readonly Uint8Array[] {
    const messages = this.#messages;
    this.#messages = [];
    return joinShort(messages);
  }
}
