/** The embedded PostgreSQL cannot be used; the message is one line for the person who started Postern. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError';
}

/** The text of the last FATAL or PANIC line of a server's log. */
export function lastFatal(log: string): string | undefined {
  return [...log.matchAll(/(?:FATAL|PANIC): +(.+)/g)].at(-1)?.[1];
}
