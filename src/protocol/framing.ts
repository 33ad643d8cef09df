import { Buffer } from 'node:buffer';
import { ServiceError } from '../errors.ts';

/** Which messages one side may send, and how much of each a reader needs at once. Both arrays are indexed by type byte. */
export interface FrameRules {
  readonly sender: Sender;
  /** The largest value of the length word; 0: there is no such message. */
  readonly limits: Int32Array;
  /** How many bytes of the body must have arrived, or all of it if it is shorter, before a message is shown. */
  readonly heads: Int32Array;
  /** Larger bodies are refused with 54000. */
  readonly maxBodyBytes: number;
}

/** The type byte, and a length that counts itself and the body. @see https://www.postgresql.org/docs/current/protocol-overview.html */
export const HEADER_BYTES = 5;

// Postgres' PQ_SMALL_MESSAGE_LIMIT and PQ_LARGE_MESSAGE_LIMIT.
const SMALL_MESSAGE = 10_000;
const LARGE_MESSAGE = 0x3ffffffe;
/** A backend can send larger values than it accepts, so its messages may be of any size. */
export const ANY_SIZE = 0x7fffffff;

const LARGE_FRONTEND_MESSAGES = 'QPBFd';
const SMALL_FRONTEND_MESSAGES = 'CDEHSXcf';
const BACKEND_MESSAGES = '123ACDEGHIKNRSTVWZcdnstv';

/**
 * The messages that a client may send once it is logged in, with Postgres' own limits.
 * @param heads by type letter: `{ P: 65_536 }` shows a Parse message once 64 KiB or all of it has arrived; default 0, the header
 */
export function frontendFrames(heads: Readonly<Record<string, number>> = {}, maxBodyBytes = ANY_SIZE): FrameRules {
  const limits = byType(LARGE_FRONTEND_MESSAGES, LARGE_MESSAGE);
  for (const letter of SMALL_FRONTEND_MESSAGES) limits[letter.charCodeAt(0)] = SMALL_MESSAGE;
  return { sender: 'frontend', limits, heads: headsByType(heads), maxBodyBytes };
}

/** The messages that Postgres sends. @param heads as in {@link frontendFrames} */
export function backendFrames(heads: Readonly<Record<string, number>> = {}, maxBodyBytes = ANY_SIZE): FrameRules {
  return { sender: 'backend', limits: byType(BACKEND_MESSAGES, ANY_SIZE), heads: headsByType(heads), maxBodyBytes };
}

const NO_BYTES = Buffer.alloc(0);

/** Limits the memory for message heads that have not arrived whole. */
export interface HeadBudget {
  /** Whether so many more bytes may be held. @param messageBytes the length of the whole body that they belong to */
  mayGrow(bytes: number, messageBytes: number): boolean;
}

const UNBOUNDED: HeadBudget = { mayGrow: () => true };

/** The beginning of a message. */
interface HeldMessage {
  /** The message's bytes, and space for more. */
  buffer: Buffer;
  /** The number of its bytes that have arrived. */
  bytes: number;
}

/** This much of a head may always be held. */
export const MIN_HEAD_BYTES = 65_536;

/**
 * Finds the messages in a stream that arrives in chunks cut anywhere, without allocating per message: the fields
 * describe the fragment that {@link next} moved to. The fragments together are exactly the bytes that were pushed,
 * so a relay forwards `buffer[start..end)` and joins neighbours of the same buffer into one write.
 *
 *     scanner.push(chunk);
 *     while (scanner.next()) { … scanner.type, scanner.buffer, scanner.start, scanner.end … }
 *
 * A message is first shown when its header and its head (see {@link FrameRules}) have arrived; the rest of it follows in
 * fragments with `first` false. Bytes that wait for the next chunk are copied, so a chunk may be overwritten as soon as
 * `next` has returned false. After an error the stream cannot be continued.
 */
export class FrameScanner {
  /** The type byte of the message that the fragment belongs to. */
  type = 0;
  /** The length of the message's whole body, from its header. */
  length = 0;
  /** Holds the fragment: the chunk, or a copy (never written to again) where a message's head was cut by the end of a chunk. */
  buffer: Buffer = NO_BYTES;
  start = 0;
  end = 0;
  /** The fragment begins with the message's type byte at `start`; its body is at `start + 5`. */
  first = false;
  /** The message ends at `end`. */
  last = true;

  readonly #rules: FrameRules;
  readonly #limits: Int32Array;
  readonly #heads: Int32Array;
  #chunk: Buffer = NO_BYTES;
  #position = 0;
  /** How many bytes of the message last shown have not been shown yet. */
  #remaining = 0;
  /** Set while the beginning of a message has arrived that cannot be shown yet. Only this class sets it. */
  held: HeldMessage | undefined;
  readonly #budget: HeadBudget;

  /**
   * @param budget where it refuses more bytes of a head, the message is shown with the part of the head that has arrived,
   *   if that is {@link MIN_HEAD_BYTES} or more
   */
  constructor(rules: FrameRules, budget: HeadBudget = UNBOUNDED) {
    this.#rules = rules;
    this.#budget = budget;
    this.#limits = rules.limits;
    this.#heads = rules.heads;
  }

  /** Adds bytes after those that have not been shown yet. */
  push(chunk: Buffer): void {
    this.#chunk = this.#position < this.#chunk.length ? Buffer.concat([this.#chunk.subarray(this.#position), chunk]) : chunk;
    this.#position = 0;
  }

  /**
   * Moves to the next fragment.
   * @returns false when no further fragment can be shown before the next push
   * @throws ServiceError protocol_violation (from a backend: backend_lost) for an unknown type or an impossible length;
   *   payload_too_large (from a backend: response_too_large) beyond `maxBodyBytes`
   */
  next(): boolean {
    if (this.#remaining > 0) return this.#showMore();
    if (this.held !== undefined) return this.#showHeld(this.held);
    const start = this.#position;
    const available = this.#chunk.length - start;
    if (available === 0) return this.#releaseChunk();
    if (available < HEADER_BYTES) return this.#hold(HEADER_BYTES);
    const wanted = this.#readHeader(this.#chunk, start);
    if (available < wanted) return this.#hold(wanted);
    const size = Math.min(available, HEADER_BYTES + this.length);
    this.#position = start + size;
    return this.#show(this.#chunk, start, start + size);
  }

  /**
   * Widens the fragment over the following messages of the same type, including the beginning of one that has not arrived whole.
   * This is for callers that forward all of them unchanged; then only an incomplete header waits for the next chunk.
   */
  widen(): void {
    const chunk = this.#chunk;
    const { type, buffer } = this;
    if (buffer !== chunk || !this.last) return;
    let end = this.#position;
    while (end + HEADER_BYTES <= chunk.length && chunk[end] === type) {
      const word = int32At(chunk, end + 1);
      // `next` throws the error.
      if (word < 4 || word - 4 > this.#rules.maxBodyBytes) break;
      this.length = word - 4;
      end += 1 + word;
    }
    this.#remaining = Math.max(0, end - chunk.length);
    this.last = this.#remaining === 0;
    this.end = end - this.#remaining;
    this.#position = this.end;
  }

  /** Takes out the bytes after the fragment shown, for another reader to continue the stream. */
  takeRest(): Buffer {
    const rest = this.#chunk.subarray(this.#position);
    this.#position = this.#chunk.length;
    return rest;
  }

  /**
   * Takes out the fragment shown, which begins a message, and the bytes after it. They are pushed again later, before any other
   * bytes: until then it is as if nothing of the message had arrived.
   */
  takeMessage(): Buffer {
    const message = Buffer.concat([this.buffer.subarray(this.start, this.end), this.takeRest()]);
    this.#remaining = 0;
    this.last = true;
    this.#releaseChunk();
    return message;
  }

  #show(buffer: Buffer, start: number, end: number): true {
    this.buffer = buffer;
    this.start = start;
    this.end = end;
    this.#remaining = HEADER_BYTES + this.length - (end - start);
    this.first = true;
    this.last = this.#remaining === 0;
    return true;
  }

  #showMore(): boolean {
    const start = this.#position;
    const size = Math.min(this.#chunk.length - start, this.#remaining);
    if (size === 0) return false;
    this.#position = start + size;
    this.#remaining -= size;
    this.buffer = this.#chunk;
    this.start = start;
    this.end = this.#position;
    this.first = false;
    this.last = this.#remaining === 0;
    return true;
  }

  #showHeld(held: HeldMessage): boolean {
    if (!this.#fill(held, HEADER_BYTES)) return false;
    const wanted = this.#affordable(held, this.#readHeader(held.buffer, 0));
    if (!this.#fill(held, wanted)) return false;
    this.held = undefined;
    return this.#show(held.buffer, 0, wanted);
  }

  /** @returns how many bytes to wait for before the message is shown: `wanted`, or those held if the budget refuses more */
  #affordable({ bytes }: HeldMessage, wanted: number): number {
    if (bytes < HEADER_BYTES + MIN_HEAD_BYTES) return wanted;
    const more = Math.min(wanted - bytes, this.#chunk.length - this.#position);
    return more === 0 || this.#budget.mayGrow(more, this.length) ? wanted : bytes;
  }

  /** Everything has been shown. An idle connection keeps no chunk in memory. */
  #releaseChunk(): false {
    this.#chunk = NO_BYTES;
    this.#position = 0;
    this.buffer = NO_BYTES;
    return false;
  }

  /** Keeps the end of the chunk for later. @param wanted how many bytes of the message are needed to show it */
  #hold(wanted: number): false {
    this.#checkType(this.#chunk[this.#position] ?? 0);
    this.held = { buffer: NO_BYTES, bytes: 0 };
    this.#fill(this.held, wanted);
    return false;
  }

  /** Moves bytes from the chunk to those held, until they are `wanted` bytes. @returns whether they are */
  #fill(held: HeldMessage, wanted: number): boolean {
    const missing = wanted - held.bytes;
    if (missing <= 0) return true;
    const size = Math.min(missing, this.#chunk.length - this.#position);
    this.#reserve(held, held.bytes + size, wanted);
    this.#chunk.copy(held.buffer, held.bytes, this.#position, this.#position + size);
    held.bytes += size;
    this.#position += size;
    return size === missing;
  }

  /**
   * Grows by doubling, with the bytes that have arrived: a client could declare a large length to make Postern allocate it.
   * A backend's length is trusted: the memory that {@link HeadBudget} has granted is allocated at once.
   */
  #reserve(held: HeldMessage, bytes: number, wanted: number): void {
    if (bytes <= held.buffer.length) return;
    const isTrusted = this.#rules.sender === 'backend' && held.bytes > MIN_HEAD_BYTES;
    const grown = Buffer.allocUnsafe(isTrusted ? wanted : Math.max(bytes, Math.min(wanted, 2 * held.buffer.length)));
    held.buffer.copy(grown, 0, 0, held.bytes);
    held.buffer = grown;
  }

  /** @returns how many bytes, with the header, must have arrived before the message is shown */
  #readHeader(buffer: Buffer, start: number): number {
    const type = buffer[start] ?? 0;
    const limit = this.#checkType(type);
    const word = int32At(buffer, start + 1);
    if (word < 4 || word > limit) throw violation(this.#rules.sender, 'invalid message length');
    const length = word - 4;
    if (length > this.#rules.maxBodyBytes) throw tooLarge(this.#rules);
    this.type = type;
    this.length = length;
    const head = this.#heads[type] ?? 0;
    return HEADER_BYTES + Math.min(head, length);
  }

  #checkType(type: number): number {
    const limit = this.#limits[type] ?? 0;
    if (limit === 0) throw violation(this.#rules.sender, `invalid ${this.#rules.sender} message type ${type}`);
    return limit;
  }
}

/** Runs for every message. Cheaper than `readInt32BE`, which would check the bounds again. */
function int32At(buffer: Buffer, at: number): number {
  return ((buffer[at] ?? 0) << 24) | ((buffer[at + 1] ?? 0) << 16) | ((buffer[at + 2] ?? 0) << 8) | (buffer[at + 3] ?? 0);
}

function headsByType(heads: Readonly<Record<string, number>>): Int32Array {
  const bytes = new Int32Array(256);
  for (const [letter, head] of Object.entries(heads)) bytes[letter.charCodeAt(0)] = head;
  return bytes;
}

function byType(letters: string, limit: number): Int32Array {
  const limits = new Int32Array(256);
  for (const letter of letters) limits[letter.charCodeAt(0)] = limit;
  return limits;
}

function tooLarge({ sender, maxBodyBytes }: FrameRules): ServiceError {
  const kind = sender === 'frontend' ? 'payload_too_large' : 'response_too_large';
  return new ServiceError(kind, `message exceeds the limit of ${maxBodyBytes} bytes`);
}

/**
 * Reads the fields of one message's body in order. Every read checks that enough bytes are left, and fails with Postgres' error text.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/libpq/pqformat.c
 */
export class BodyReader {
  readonly #body: Buffer;
  readonly #sender: Sender;
  #position = 0;

  constructor(body: Buffer, sender: Sender) {
    this.#body = body;
    this.#sender = sender;
  }

  byte(): number {
    if (this.#position === this.#body.length) throw violation(this.#sender, 'no data left in message');
    return this.#body.readUInt8(this.#position++);
  }

  /** For counts, which go up to 65,535. */
  uint16(): number {
    return this.#body.readUInt16BE(this.#advance(2));
  }

  int16(): number {
    return this.#body.readInt16BE(this.#advance(2));
  }

  /** For OIDs, which are unsigned. */
  uint32(): number {
    return this.#body.readUInt32BE(this.#advance(4));
  }

  int32(): number {
    return this.#body.readInt32BE(this.#advance(4));
  }

  /** A string up to its zero byte. */
  string(): string {
    const end = stringEnd(this.#body, this.#position, this.#body.length);
    if (end === -1) throw violation(this.#sender, 'invalid string in message');
    const text = this.#body.toString('utf8', this.#position, end);
    this.#position = end + 1;
    return text;
  }

  /** A view, not a copy. */
  bytes(length: number): Buffer {
    const start = this.#advance(length);
    return this.#body.subarray(start, start + length);
  }

  /** A value after its length; null where the length is -1. */
  value(): Buffer | null {
    const length = this.int32();
    return length === -1 ? null : this.bytes(length);
  }

  /** A list after its 16-bit count. */
  list<T>(item: () => T): T[] {
    const items: T[] = [];
    for (let left = this.uint16(); left > 0; left--) items.push(item());
    return items;
  }

  /** All that is left, as a view. */
  rest(): Buffer {
    return this.bytes(this.#body.length - this.#position);
  }

  end(): void {
    if (this.#position !== this.#body.length) throw violation(this.#sender, 'invalid message format');
  }

  #advance(length: number): number {
    const start = this.#position;
    if (length < 0 || length > this.#body.length - start) throw violation(this.#sender, 'insufficient data left in message');
    this.#position = start + length;
    return start;
  }
}

/** Who sent the bytes; it decides which error a malformed message is. */
type Sender = 'frontend' | 'backend';

/** The error for a malformed message: protocol_violation (08P01) from a client, a failed connection (08006) from a backend. */
export function violation(sender: Sender, message: string): ServiceError {
  if (sender === 'frontend') return new ServiceError('protocol_violation', message);
  return new ServiceError('backend_lost', `the database server's reply could not be understood: ${message}`);
}

/** Up to this many bytes, a loop is faster than a call into the runtime. */
const NEAR_BYTES = 64;

/**
 * Finds the zero byte that ends the string beginning at `from`.
 * @returns its offset in `buffer`, or -1 when there is none before `to`
 */
export function stringEnd(buffer: Uint8Array, from: number, to: number): number {
  const limit = Math.min(to, buffer.length);
  const near = Math.min(limit, from + NEAR_BYTES);
  for (let i = from; i < near; i++) if (buffer[i] === 0) return i;
  if (near === limit) return -1;
  const found = buffer.subarray(near, limit).indexOf(0);
  return found < 0 ? -1 : near + found;
}

/** The string beginning at `from`, as Latin-1; without a zero byte, everything before `to`. */
export function latin1String(buffer: Buffer, from: number, to: number): string {
  const end = stringEnd(buffer, from, to);
  return buffer.toString('latin1', from, end < 0 ? to : end);
}
