const NONE: ReadonlyMap<string, string> = new Map();

/**
 * The parameter values that a client has been told by ParameterStatus.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-ASYNC
 */
export class ReportedParameters {
  /** Sessions with the same startup values share this map until one of them changes. */
  #told: ReadonlyMap<string, string>;
  /** Changed values that may change back before the client is told. */
  #putOff = NONE;

  /** @param told the values that the client knows */
  constructor(told: ReadonlyMap<string, string>) {
    this.#told = told;
  }

  /** The value that the client knows. */
  get(parameter: string): string | undefined {
    return this.#told.get(parameter);
  }

  isTold(parameter: string, value: string): boolean {
    return this.#told.get(parameter) === value;
  }

  /** The client knows this value from now on. An older value that was put off is dropped. */
  tell(parameter: string, value: string): void {
    this.#told = new Map([...this.#told, [parameter, value]]);
    if (this.#putOff.has(parameter)) this.#putOff = new Map([...this.#putOff].filter(([name]) => name !== parameter));
  }

  putOff(parameter: string, value: string): void {
    this.#putOff = new Map([...this.#putOff, [parameter, value]]);
  }

  /** @returns the values put off that really differ from what the client knows; they count as told */
  settle(): [parameter: string, value: string][] {
    const changed = [...this.#putOff].filter(([parameter, value]) => !this.isTold(parameter, value));
    for (const [parameter, value] of changed) this.tell(parameter, value);
    this.#putOff = NONE;
    return changed;
  }
}
