let began = 0;

/**
 * When the event loop has last come back from waiting, by `performance.now()`, as far as those know who ask in every turn:
 * what is found then has been there by then, and what is told of it only later has waited for nothing but others of that turn.
 */
export function turnBegan(): number {
  if (began > 0) return began;
  began = performance.now();
  setImmediate(ended);
  return began;
}

function ended(): void {
  began = 0;
}
