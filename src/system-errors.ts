/** The short reason in an operating system error: `EACCES: permission denied, mkdir '/x'` becomes `permission denied`. */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return /^E[A-Z0-9]+: ([^,]+)/.exec(message)?.[1] ?? message.split('\n')[0] ?? message;
}

/** @param codes such as `ENOENT`; see errno(3) */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}
