/** The arguments are no command. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  /** How the command is written, where the message does not say what to change. */
  readonly usage: string;

  /** @param message empty where nothing can be said but how the command is written */
  constructor(message: string, usage = '', options?: ErrorOptions) {
    super(message, options);
    this.usage = usage;
  }
}
