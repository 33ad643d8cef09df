/** Why a session does not go on for the moment: with its client's input, or with its backend's replies. */
export const Reason = {
  /** No backend has been checked out yet. */
  backend: 1,
  /** A large text is being rewritten. */
  rewriting: 2,
  /** ReadyForQuery is held until the session's settings are restored on its backend. */
  settings: 4,
  /** Signals to other sessions, or a cancel request, have not arrived yet. */
  signals: 8,
  /** The backend has to be sent much for what the client has sent: the rest waits for the next turn. */
  room: 16,
  /** The backend's messages are much work: the rest waits for the next turn. */
  portion: 32,
  /** The client has not read its reply, and only a backend that is kept sends no more. */
  reader: 64,
} as const;

/** Reasons that do not end with a reply from the backend. */
const NO_REPLY = Reason.backend | Reason.rewriting;

/** What a session waits for, and the input that waits meanwhile, in the order in which it came. */
export class Gate {
  #reasons = 0;
  /** Undefined: input is passed on as it comes. */
  #input: Buffer[] | undefined;

  close(reason: number): void {
    this.#reasons |= reason;
  }

  open(reason: number): void {
    this.#reasons &= ~reason;
  }

  /** Whether one of these is a reason to wait. */
  isClosed(reasons: number): boolean {
    return (this.#reasons & reasons) !== 0;
  }

  /** No input waits, and what comes does not have to wait. */
  get isClear(): boolean {
    return this.#input === undefined;
  }

  /** Input waits for something other than a reply. */
  get isWaiting(): boolean {
    return (this.#reasons & NO_REPLY) !== 0;
  }

  get inputBytes(): number {
    return this.#input?.reduce((sum, { length }) => sum + length, 0) ?? 0;
  }

  /** The input that waits, if that is one chunk. */
  get onlyInput(): Buffer | undefined {
    return this.#input?.length === 1 ? this.#input[0] : undefined;
  }

  /** All input waits from now on, and this comes before what has waited already. */
  holdFirst(bytes: Buffer, reason: typeof Reason.backend | typeof Reason.rewriting): void {
    this.close(reason);
    if (this.#input === undefined) this.#input = [bytes];
    else this.#input.unshift(bytes);
  }

  /** All input waits from now on. */
  holdNext(): void {
    this.#input ??= [];
  }

  /** This waits, behind what waits already. */
  hold(bytes: Buffer): void {
    if (this.#input === undefined) this.#input = [bytes];
    else this.#input.push(bytes);
  }

  /** @returns the input that has waited, which is the caller's to pass on now */
  release(): readonly Buffer[] {
    const input = this.#input ?? [];
    this.#input = undefined;
    this.open(NO_REPLY);
    return input;
  }
}
