import { LosslessNumber } from 'lossless-json';
import { ServiceError } from '../../src/errors.ts';
import { changesAsDouble, isNumberByte } from './number-literals.ts';
import { AT_ONCE_BYTES, endOfPart, endOfPlain, malformed, QUOTE, unescaped } from './string-literals.ts';

/** Deeper than any real request. Recursive functions on the value stay far from a stack overflow. */
const MAX_DEPTH = 100;
/** Limited, because each needs more memory than its bytes. */
export const MAX_VALUES = 1_000_000;
/** Objects with more members are slow, and no request has so many. */
const MEMBERS_MAX = 100_000;
/** The limit for the outermost object, which is a request with known fields. */
const FIELDS_MAX = 1_000;
/** More digits than any number of Postgres has. */
const NUMBER_MAX_BYTES = 150_000;

const [COMMA, COLON] = [0x2c, 0x3a];
const [OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];

const WORDS: ReadonlyMap<number, readonly [text: string, value: unknown]> = new Map([
  [0x74, ['true', true]],
  [0x66, ['false', false]],
  [0x6e, ['null', null]],
]);

/** @see https://www.rfc-editor.org/rfc/rfc8259#section-6 */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const SAFE_DIGITS = 15;

type Awaited = 'value' | 'first value' | 'name' | 'first name' | 'more' | 'nothing' | 'rest of a string';

/** An array or object that has not been read completely. */
interface Container {
  readonly items: unknown[] | undefined;
  readonly members: Record<string, unknown>;
  /** The name of the member being read. */
  name: string;
  count: number;
}

/**
 * Reads a JSON text in parts, so that a large one does not block the event loop. Numbers that a double cannot
 * represent exactly are LosslessNumbers.
 */
export class JsonReader {
  value: unknown;
  readonly #bytes: Buffer;
  #at: number;
  #awaits: Awaited = 'value';
  readonly #containers: Container[] = [];
  /** The part of a long string read so far. */
  #parts: string[] = [];
  /** That string is the name of a member. */
  #isName = false;
  #values = 0;

  /** @param bytes valid UTF-8 */
  constructor(bytes: Buffer, start: number) {
    this.#bytes = bytes;
    this.#at = start;
  }

  /**
   * Reads up to so many further tokens, fewer if they are long.
   * @returns whether everything has been read
   * @throws ServiceError `invalid_request`
   */
  run(tokens: number): boolean {
    const until = this.#at + AT_ONCE_BYTES;
    for (let left = tokens; left > 0 && this.#at < until; left -= 1) {
      const byte = this.#awaits === 'rest of a string' ? this.#bytes[this.#at] : this.#next();
      if (byte === undefined) {
        if (this.#awaits === 'nothing') return true;
        throw malformed('it ends too early');
      }
      this.#read(byte);
    }
    return false;
  }

  #read(byte: number): void {
    switch (this.#awaits) {
      case 'value':
        this.#readValue(byte);
        return;
      case 'first value':
        if (byte === CLOSE_BRACKET) this.#close();
        else this.#readValue(byte);
        return;
      case 'name':
        this.#readName(byte);
        return;
      case 'first name':
        if (byte === CLOSE_BRACE) this.#close();
        else this.#readName(byte);
        return;
      case 'more':
        this.#readMore(byte);
        return;
      case 'rest of a string':
        this.#readString();
        return;
      case 'nothing':
        throw this.#unexpected();
    }
  }

  #readValue(byte: number): void {
    this.#values += 1;
    if (this.#values > MAX_VALUES) throw new ServiceError('invalid_request', `the JSON body holds more than ${MAX_VALUES} values`);
    if (byte === QUOTE) this.#beginString(false);
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#open(byte);
    else if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) this.#add(this.#number());
    else this.#add(this.#word(byte));
  }

  #readName(byte: number): void {
    if (byte !== QUOTE) throw this.#unexpected();
    this.#beginString(true);
  }

  #beginString(isName: boolean): void {
    this.#at += 1;
    this.#isName = isName;
    this.#readString();
  }

  /** Reads on to the string's end, or as much as is read at once. */
  #readString(): void {
    const bytes = this.#bytes;
    const start = this.#at;
    const plain = endOfPlain(bytes, start);
    const isPlain = bytes[plain] === QUOTE;
    const end = isPlain ? plain : endOfPart(bytes, plain, start + AT_ONCE_BYTES);
    const part = isPlain ? bytes.toString('utf8', start, end) : unescaped(`"${bytes.toString('utf8', start, end)}"`);
    this.#at = end;
    if (bytes[end] !== QUOTE) {
      this.#parts.push(part);
      this.#awaits = 'rest of a string';
      return;
    }
    this.#at += 1;
    this.#endString(this.#parts.length === 0 ? part : this.#whole(part));
  }

  #whole(last: string): string {
    const parts = this.#parts;
    this.#parts = [];
    parts.push(last);
    return parts.join('');
  }

  #endString(text: string): void {
    if (!this.#isName) {
      this.#add(text);
      return;
    }
    const container = this.#containers.at(-1) as Container;
    container.name = text;
    if (this.#next() !== COLON) throw this.#unexpected();
    this.#at += 1;
    this.#awaits = 'value';
  }

  #readMore(byte: number): void {
    const isArray = this.#containers.at(-1)?.items !== undefined;
    if (byte === COMMA) {
      this.#at += 1;
      this.#awaits = isArray ? 'value' : 'name';
    } else if (byte === (isArray ? CLOSE_BRACKET : CLOSE_BRACE)) this.#close();
    else throw this.#unexpected();
  }

  #open(byte: number): void {
    const isArray = byte === OPEN_BRACKET;
    this.#containers.push({ items: isArray ? [] : undefined, members: {}, name: '', count: 0 });
    checkDepth(this.#containers.length);
    this.#at += 1;
    this.#awaits = isArray ? 'first value' : 'first name';
  }

  #close(): void {
    this.#at += 1;
    const container = this.#containers.pop();
    this.#add(container?.items ?? container?.members);
  }

  /** Called when a value is complete. */
  #add(value: unknown): void {
    const container = this.#containers.at(-1);
    if (container === undefined) {
      this.value = value;
      this.#awaits = 'nothing';
      return;
    }
    if (container.items === undefined) setMember(container, value, this.#containers.length === 1 ? FIELDS_MAX : MEMBERS_MAX);
    else container.items.push(value);
    this.#awaits = 'more';
  }

  /** @returns the next byte that is not white space */
  #next(): number | undefined {
    const bytes = this.#bytes;
    let byte = bytes[this.#at];
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      this.#at += 1;
      byte = bytes[this.#at];
    }
    return byte;
  }

  #number(): number | LosslessNumber {
    const bytes = this.#bytes;
    const start = this.#at;
    let at = start;
    let whole = 0;
    for (let byte = bytes[at] ?? 0; byte >= 0x30 && byte <= 0x39 && at - start < SAFE_DIGITS; byte = bytes[at] ?? 0) {
      whole = whole * 10 + byte - 0x30;
      at += 1;
    }
    if (at > start && !isNumberByte(bytes[at] ?? 0) && (bytes[start] !== 0x30 || at === start + 1)) {
      this.#at = at;
      return whole;
    }
    while (isNumberByte(bytes[at] ?? 0)) at += 1;
    if (at - start > NUMBER_MAX_BYTES)
      throw new ServiceError('invalid_request', `a number of the JSON body has more than ${NUMBER_MAX_BYTES} digits`);
    const literal = bytes.toString('latin1', start, at);
    if (!NUMBER.test(literal)) throw this.#unexpected();
    this.#at = at;
    return changesAsDouble(literal) ? new LosslessNumber(literal) : Number(literal);
  }

  #word(byte: number): unknown {
    const [text, value] = WORDS.get(byte) ?? [];
    if (text === undefined || this.#bytes.toString('latin1', this.#at, this.#at + text.length) !== text) throw this.#unexpected();
    this.#at += text.length;
    return value;
  }

  #unexpected(): ServiceError {
    return malformed(this.#at < this.#bytes.length ? `unexpected character at byte ${this.#at}` : 'it ends too early');
  }
}

function setMember(container: Container, value: unknown, most: number): void {
  const { members, name } = container;
  container.count += 1;
  if (container.count > most) throw new ServiceError('invalid_request', `an object of the JSON body has more than ${most} members`);
  // An assignment to `__proto__` would set the prototype.
  if (name === '__proto__') Object.defineProperty(members, name, { value, enumerable: true, configurable: true, writable: true });
  else members[name] = value;
}

/** @throws ServiceError `invalid_request` */
export function checkDepth(levels: number): void {
  if (levels > MAX_DEPTH) throw new ServiceError('invalid_request', `the JSON body is nested deeper than ${MAX_DEPTH} levels`);
}
