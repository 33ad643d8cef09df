import { CsvReader, type CsvRecord, guessSeparator } from './csv.ts';

/** What becomes one transaction: as many records as the server takes in one request. */
export interface Part {
  readonly records: readonly CsvRecord[];
  /** The file ends with it. */
  readonly isLast: boolean;
  /** So much of the file has been read. */
  readonly bytesRead: number;
}

export interface PartLimits {
  readonly records: number;
  readonly values: number;
  readonly characters: number;
}

/** Quotes and comma of a value in JSON. */
const VALUE_CHARACTERS = 3;

/** Reads a file in parts, and never more of it than one of them. */
export class FileParts {
  readonly separator: string;
  readonly #chunks: AsyncGenerator<readonly [text: string, bytesRead: number]>;
  readonly #reader: CsvReader;
  readonly #limits: PartLimits;
  #waiting: CsvRecord[] = [];
  #bytesRead = 0;
  #isAtEnd = false;

  private constructor(separator: string, chunks: AsyncGenerator<readonly [string, number]>, limits: PartLimits) {
    this.separator = separator;
    this.#chunks = chunks;
    this.#reader = new CsvReader(separator);
    this.#limits = limits;
  }

  /** @param separator undefined: the one that the first line has most of @throws CsvError @throws TypeError for what is not UTF-8 */
  static async open(file: Blob, limits: PartLimits, separator?: string): Promise<FileParts> {
    const chunks = textOf(file);
    const first = await chunks.next();
    const [text, bytesRead] = first.done ? ['', 0] : first.value;
    const parts = new FileParts(separator ?? guessSeparator(text), chunks, limits);
    parts.#push(text, bytesRead);
    return parts;
  }

  /** The first record, which is then not part of what follows. */
  async takeFirst(): Promise<CsvRecord | undefined> {
    while (this.#waiting.length === 0 && (await this.#readMore()));
    return this.#waiting.shift();
  }

  /** @throws CsvError */
  async next(): Promise<Part> {
    let taken = 0;
    let size = { records: 0, values: 0, characters: 0 };
    for (;;) {
      for (; taken < this.#waiting.length; taken += 1) {
        const record = this.#waiting[taken];
        if (record === undefined) break;
        const next = grown(size, record);
        if (taken > 0 && exceeds(next, this.#limits)) return this.#take(taken);
        size = next;
      }
      if (!(await this.#readMore())) return this.#take(taken);
    }
  }

  async close(): Promise<void> {
    await this.#chunks.return(undefined);
  }

  #take(count: number): Part {
    const records = this.#waiting.slice(0, count);
    this.#waiting = this.#waiting.slice(count);
    return { records, isLast: this.#isAtEnd && this.#waiting.length === 0, bytesRead: this.#bytesRead };
  }

  /** @returns whether there may be more */
  async #readMore(): Promise<boolean> {
    if (this.#isAtEnd) return false;
    const { done, value } = await this.#chunks.next();
    if (done) {
      this.#waiting.push(...this.#reader.end());
      this.#isAtEnd = true;
    } else this.#push(...value);
    return true;
  }

  #push(text: string, bytesRead: number): void {
    for (const record of this.#reader.push(text)) this.#waiting.push(record);
    this.#bytesRead = bytesRead;
  }
}

async function* textOf(file: Blob): AsyncGenerator<readonly [string, number]> {
  // A byte order mark is left out by it.
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = file.stream().getReader();
  let bytesRead = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      bytesRead += value.length;
      yield [decoder.decode(value, { stream: true }), bytesRead];
    }
    yield [decoder.decode(), bytesRead];
  } finally {
    await reader.cancel();
  }
}

function grown({ records, values, characters }: PartLimits, { fields }: CsvRecord): PartLimits {
  const length = fields.reduce((sum, field) => sum + (field?.length ?? 0) + VALUE_CHARACTERS, 0);
  return { records: records + 1, values: values + fields.length, characters: characters + length };
}

function exceeds(size: PartLimits, limits: PartLimits): boolean {
  return size.records > limits.records || size.values > limits.values || size.characters > limits.characters;
}
