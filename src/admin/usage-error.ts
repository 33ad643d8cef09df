/** The arguments are no command; the message says what is. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
