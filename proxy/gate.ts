/** Why a session does not handle more of its client's input or of its backend's replies for now. */
export const Reason = {
  /** No backend has been checked out yet. */
  backend: 1,
  /** A large text is being rewritten. */
  rewriting: 2,
  /** ReadyForQuery is held until the session's settings are restored on its backend. */
  settings: 4,
  /** Signals to other sessions, or a cancel request, have not reached the server yet. */
  signals: 8,
  /** The client's input has filled the buffer for the backend, or takes long to handle: the rest waits for the next turn. */
  backendBuffer: 16,
  /** The backend's messages take long to handle: the rest waits for the next turn. */
  replyPart: 32,
  /** The client has not read its reply. The session keeps its backend, so that no further replies pile up. */
  reader: 64,
  /** The backend may refuse a setting of the session. Nothing of the client is sent before it has taken them. */
  taking: 128,
} as const;

/** Reasons that do not end with a reply from the backend. */
const NO_REPLY = Reason.backend | Reason.rewriting;

/** The reasons for which a session waits, and the input that waits meanwhile, in the order of its arrival. */
export class Gate {
  /* Only this class sets these. */
  /** 0: there is none. */
  reasons = 0;
  /** The input that waits. Undefined while none does, and new input does not have to. */
  input: Buffer[] | undefined;

  close(reason: number): void {
    this.reasons |= reason;
  }

  open(reason: number): void {
    this.reasons &= ~reason;
  }

  /** Whether the session waits for one of these reasons. */
  isClosed(reasons: number): boolean {
    return (this.reasons & reasons) !== 0;
  }

  /** Input waits for something other than a reply. */
  get isWaiting(): boolean {
    return (this.reasons & NO_REPLY) !== 0;
  }

  get inputBytes(): number {
    return this.input?.reduce((sum, { length }) => sum + length, 0) ?? 0;
  }

  /** The input that waits, if it is a single chunk. */
  get onlyInput(): Buffer | undefined {
    return this.input?.length === 1 ? this.input[0] : undefined;
  }

  /** All input waits from now on, and these bytes are first. */
  holdFirst(bytes: Buffer, reason: typeof Reason.backend | typeof Reason.rewriting): void {
    this.close(reason);
    if (this.input === undefined) this.input = [bytes];
    else this.input.unshift(bytes);
  }

  /** Puts other bytes in the place of the first input that waits. */
  replaceFirst(bytes: Buffer): void {
    this.input?.splice(0, 1, bytes);
  }

  /** All input waits from now on. */
  holdNext(): void {
    this.input ??= [];
  }

  /** Adds bytes behind the input that waits already. */
  hold(bytes: Buffer): void {
    if (this.input === undefined) this.input = [bytes];
    else this.input.push(bytes);
  }

  /** @returns the input that has waited; the caller forwards it */
  release(): readonly Buffer[] {
    const input = this.input ?? [];
    this.input = undefined;
    this.open(NO_REPLY);
    return input;
  }
}
