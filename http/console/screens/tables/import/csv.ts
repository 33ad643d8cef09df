/** A record: its fields, where NULL is an empty field without quotes, and the line that it begins in. */
export interface CsvRecord {
  readonly line: number;
  readonly fields: readonly (string | null)[];
}

/** What is not CSV. */
export class CsvError extends Error {
  override readonly name = 'CsvError';
  readonly line: number;

  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

const QUOTE = '"';

/** What the last character was part of. */
type State = 'start' | 'bare' | 'quoted' | 'after-quote';

/**
 * Reads CSV that comes in parts, split anywhere. Lines end with LF, CR LF or CR; empty ones between records are left out.
 * @see https://www.rfc-editor.org/rfc/rfc4180
 */
export class CsvReader {
  readonly #separator: string;
  #state: State = 'start';
  /** The part of the field that has been read. */
  #field = '';
  #fields: (string | null)[] = [];
  #line = 1;
  #firstLine = 1;
  #wasCr = false;

  constructor(separator = ',') {
    this.#separator = separator;
  }

  /** @returns the records that end in this part @throws CsvError */
  push(text: string): CsvRecord[] {
    const records: CsvRecord[] = [];
    let at = 0;
    while (at < text.length) at = this.#state === 'quoted' ? this.#readQuoted(text, at) : this.#readBare(text, at, records);
    return records;
  }

  /** The text has ended. @returns its last record, where no line end follows it @throws CsvError */
  end(): CsvRecord[] {
    if (this.#state === 'quoted') throw new CsvError(this.#firstLine, 'the quotes that begin in this record do not end');
    const records: CsvRecord[] = [];
    this.#endRecord(records);
    return records;
  }

  /** Inside of quotes all is text but a quote, which is written twice. */
  #readQuoted(text: string, at: number): number {
    const quote = text.indexOf(QUOTE, at);
    const end = quote < 0 ? text.length : quote;
    for (let index = at; index < end; index += 1) this.#countLine(text.charAt(index));
    this.#field += text.slice(at, end);
    if (quote < 0) return end;
    this.#state = 'after-quote';
    this.#wasCr = false;
    return quote + 1;
  }

  #readBare(text: string, at: number, records: CsvRecord[]): number {
    const character = text.charAt(at);
    if (character === '\n' || character === '\r') {
      // The LF of a CR LF belongs to the line that has ended.
      if (character === '\r' || !this.#wasCr) this.#endRecord(records);
      this.#countLine(character);
      this.#firstLine = this.#line;
    } else {
      this.#wasCr = false;
      if (character === this.#separator) this.#endField();
      else if (character === QUOTE) this.#quote();
      else return this.#readPlain(text, at);
    }
    return at + 1;
  }

  /** Reads ordinary characters, up to the next separator, quote or line end. */
  #readPlain(text: string, at: number): number {
    if (this.#state === 'after-quote') throw new CsvError(this.#line, 'there is text behind the quotes of a field');
    let end = at + 1;
    while (end < text.length && !this.#hasMeaning(text.charAt(end))) end += 1;
    this.#field += text.slice(at, end);
    this.#state = 'bare';
    return end;
  }

  #hasMeaning(character: string): boolean {
    return character === this.#separator || character === QUOTE || character === '\n' || character === '\r';
  }

  #quote(): void {
    if (this.#state === 'bare') throw new CsvError(this.#line, 'a field that has quotes must begin with them');
    if (this.#state === 'after-quote') this.#field += QUOTE;
    this.#state = 'quoted';
  }

  #endField(): void {
    this.#fields.push(this.#state === 'start' ? null : this.#field);
    this.#field = '';
    this.#state = 'start';
  }

  #endRecord(records: CsvRecord[]): void {
    if (this.#state === 'start' && this.#fields.length === 0) return;
    this.#endField();
    records.push({ line: this.#firstLine, fields: this.#fields });
    this.#fields = [];
  }

  #countLine(character: string): void {
    if (character === '\r' || (character === '\n' && !this.#wasCr)) this.#line += 1;
    this.#wasCr = character === '\r';
  }
}

/** The separator that the first line has most of. */
export function guessSeparator(beginning: string): string {
  const [first = ''] = beginning.split(/\r|\n/, 1);
  const counts = [',', ';', '\t', '|'].map((separator) => [separator, first.split(separator).length] as const);
  return counts.reduce((best, one) => (one[1] > best[1] ? one : best))[0];
}
