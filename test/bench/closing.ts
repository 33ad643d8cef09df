/** What was opened, to be closed in the opposite order whatever happens: at the end, after a failure, on Ctrl-C. */
export class Closing {
  readonly #steps: (() => unknown)[] = [];

  defer(step: () => unknown): void {
    this.#steps.push(step);
  }

  /** Goes on after a step that fails: nothing may be left behind because of it. */
  async close(): Promise<void> {
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (error) {
        process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`);
      }
    }
  }
}
