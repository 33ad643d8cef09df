/** The embedded PostgreSQL cannot be used; the message is one line for the person who started Postern. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError';
}

/** The short reason in an operating system error: `EACCES: permission denied, mkdir '/x'` becomes `permission denied`. */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return /^E[A-Z0-9]+: ([^,]+)/.exec(message)?.[1] ?? message.split('\n')[0] ?? message;
}

export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}

/** The text of the last FATAL or PANIC line of a server's log. */
export function lastFatal(log: string): string | undefined {
  return [...log.matchAll(/(?:FATAL|PANIC): +(.+)/g)].at(-1)?.[1];
}
