const NONE: ReadonlyMap<string, string> = new Map();

/** What a client has been told of its session's parameters (ParameterStatus). */
export class ReportedParameters {
  /** The same for all that started alike until something changes. */
  #told: ReadonlyMap<string, string>;
  /** Those that have changed and may change back before the client is told. */
  #putOff = NONE;

  /** @param told as the client knows them */
  constructor(told: ReadonlyMap<string, string>) {
    this.#told = told;
  }

  isTold(parameter: string, value: string): boolean {
    return this.#told.get(parameter) === value;
  }

  /** The client knows it from now on, and nothing older is to be told. */
  tell(parameter: string, value: string): void {
    this.#told = new Map([...this.#told, [parameter, value]]);
    if (this.#putOff.has(parameter)) this.#putOff = new Map([...this.#putOff].filter(([name]) => name !== parameter));
  }

  putOff(parameter: string, value: string): void {
    this.#putOff = new Map([...this.#putOff, [parameter, value]]);
  }

  /** @returns those that have really changed of what was put off: they count as told */
  settle(): [parameter: string, value: string][] {
    const changed = [...this.#putOff].filter(([parameter, value]) => !this.isTold(parameter, value));
    for (const [parameter, value] of changed) this.tell(parameter, value);
    this.#putOff = NONE;
    return changed;
  }
}
