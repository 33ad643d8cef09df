/** Questions to another process that wait for their answers. */
export class Questions<Answer> {
  #last = 0;
  readonly #waiting = new Map<number, (answer: Answer) => void>();

  /** @param send sends the question with this number */
  ask(send: (request: number) => void): Promise<Answer> {
    return new Promise((resolve) => {
      this.#last += 1;
      this.#waiting.set(this.#last, resolve);
      send(this.#last);
    });
  }

  /** As {@link ask}, for a process that may hang. @returns undefined when it does not answer in time */
  async askFor(ms: number, send: (request: number) => void): Promise<Answer | undefined> {
    let request = 0;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(resolve, ms, undefined);
    });
    const answer = this.ask((number) => {
      request = number;
      send(number);
    });
    try {
      return await Promise.race([answer, late]);
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(request);
    }
  }

  answered(request: number, answer: Answer): void {
    this.#waiting.get(request)?.(answer);
    this.#waiting.delete(request);
  }
}
