import { createHash } from 'node:crypto';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { normalizedStatements } from '../syntax/normalized-text.ts';
import { Code, digitsEnd, IDENTIFIER_PART } from '../syntax/scanner.ts';
import type { RestrictedScope } from './key-rows.ts';
import { BUCKETS, bucketOf } from './usage.ts';

/** Longer texts are cut. */
const QUERY_TEXT_MAX_CHARACTERS = 8_000;
/** How many texts of one role are told apart. All others are counted together. */
export const TEXTS_MAX = 500;
/** The id of what counts all other texts. */
export const OTHERS_ID = '0';

/** What has been counted of a text. Times are by the clock of `performance.now()`. */
export interface StatementCounts {
  readonly queryId: string;
  /** Empty for {@link OTHERS_ID}. */
  readonly sql: string;
  /** Those that failed are among them. */
  readonly calls: number;
  readonly errors: number;
  readonly rows: number;
  readonly bytes: number;
  readonly totalMs: number;
  readonly maxMs: number;
  readonly firstAt: number;
  readonly lastAt: number;
  /** How many calls took how long, by bucket of `bucketOf`; empty ones at the end are left out. */
  readonly latency: readonly number[];
}

/** The statements of one text, in their order. Those that are not counted have no counter. */
export type Counted = readonly (StatementCounter | undefined)[];

/** Counts the runs of one statement. It is counted for each run, so nothing is allocated for that. */
export class StatementCounter {
  readonly queryId: string;
  readonly sql: string;
  /** It is among those of its role that are told apart. */
  isKept = false;
  calls = 0;
  errors = 0;
  rows = 0;
  bytes = 0;
  totalMs = 0;
  maxMs = 0;
  firstAt = 0;
  lastAt = 0;
  #latency: Uint32Array | undefined;
  readonly #keep: (counter: StatementCounter) => StatementCounter;

  constructor(queryId: string, sql: string, keep: (counter: StatementCounter) => StatementCounter) {
    this.queryId = queryId;
    this.sql = sql;
    this.#keep = keep;
  }

  /** A run has ended. @param at by `performance.now()` */
  ran(at: number, durationMs: number, rows: number, bytes: number, hasFailed: boolean): void {
    if (!this.isKept) {
      this.#keep(this).ran(at, durationMs, rows, bytes, hasFailed);
      return;
    }
    this.calls += 1;
    if (hasFailed) this.errors += 1;
    this.#latency ??= new Uint32Array(BUCKETS);
    const bucket = bucketOf(durationMs);
    this.#latency[bucket] = (this.#latency[bucket] ?? 0) + 1;
    if (durationMs > this.maxMs) this.maxMs = durationMs;
    this.#add(at, durationMs, rows, bytes);
  }

  /** A part of its rows has been sent, and it may go on. */
  progressed(at: number, durationMs: number, rows: number, bytes: number): void {
    (this.isKept ? this : this.#keep(this)).#add(at, durationMs, rows, bytes);
  }

  #add(at: number, durationMs: number, rows: number, bytes: number): void {
    if (this.lastAt === 0) this.firstAt = at;
    this.lastAt = at;
    this.totalMs += durationMs;
    this.rows += rows;
    this.bytes += bytes;
  }

  /** Begins anew. @returns undefined if nothing has happened since */
  take(): StatementCounts | undefined {
    if (this.lastAt === 0) return undefined;
    const { queryId, sql, calls, errors, rows, bytes, totalMs, maxMs, firstAt, lastAt } = this;
    const used = this.#latency === undefined ? 0 : this.#latency.findLastIndex((count) => count > 0) + 1;
    const latency = this.#latency === undefined ? [] : Array.from(this.#latency.subarray(0, used));
    this.calls = this.errors = this.rows = this.bytes = this.totalMs = this.maxMs = this.firstAt = this.lastAt = 0;
    this.#latency = undefined;
    return { queryId, sql, calls, errors, rows, bytes, totalMs, maxMs, firstAt, lastAt, latency };
  }

  add(counts: StatementCounts): void {
    this.firstAt = this.lastAt === 0 ? counts.firstAt : Math.min(this.firstAt, counts.firstAt);
    this.lastAt = Math.max(this.lastAt, counts.lastAt);
    this.calls += counts.calls;
    this.errors += counts.errors;
    this.rows += counts.rows;
    this.bytes += counts.bytes;
    this.totalMs += counts.totalMs;
    this.maxMs = Math.max(this.maxMs, counts.maxMs);
    this.#latency ??= new Uint32Array(BUCKETS);
    for (const [bucket, count] of counts.latency.entries()) this.#latency[bucket] = (this.#latency[bucket] ?? 0) + count;
  }
}

/** What the counters of all roles take. */
export interface CountersMemory {
  bytes: number;
  readonly maxBytes: number;
}

/** The memory of a counter besides its text. */
const COUNTER_BYTES = 800;
/** When the limit is passed by this many, these many are forgotten at once. */
const SPARE = 100;

/** A longer text is cut before it is read. */
const READ_MAX_CHARACTERS = 65_536;
/** The statements behind these are counted with all others, because each takes microseconds to read. */
export const STATEMENTS_MAX = 200;
/** What is made of a longer text is not remembered. */
const REMEMBERED_MAX_CHARACTERS = 16_384;
const REMEMBERED = {
  maxEntries: 2_000,
  maxWeight: 1_048_576,
  weightOf: (_: number, counted: Counted) => counted.reduce((sum, counter) => sum + (counter?.sql.length ?? 0), 0),
};

/** Whose statements: of the organization's own role, or of that for keys with a scope. */
export type StatementRole = 'own' | RestrictedScope;

/** The statements that one role of an organization runs in this process, since they were written to the control database last. */
export class RoleStatements {
  readonly organizationId: string;
  readonly role: StatementRole;
  readonly #asWritten: (sql: string) => string;
  readonly #memory: CountersMemory;
  readonly #started: (statements: RoleStatements) => void;
  readonly #kept = new Map<string, StatementCounter>();
  /** By {@link shapeOf} texts. */
  readonly #known = new BoundedMap<number, Counted>(REMEMBERED);
  /** Counts what is not told apart. */
  readonly #others: StatementCounter;
  /** For a statement whose text is not known. */
  readonly unknown: Counted;

  /**
   * @param asWritten a statement that reached the server, as the organization wrote it
   * @param started called when something is counted after nothing was
   */
  constructor(
    { organizationId, role }: { readonly organizationId: string; readonly role: StatementRole },
    asWritten: (sql: string) => string,
    memory: CountersMemory,
    started: (statements: RoleStatements) => void,
  ) {
    this.organizationId = organizationId;
    this.role = role;
    this.#asWritten = asWritten;
    this.#memory = memory;
    this.#started = started;
    this.#others = this.#newCounter(OTHERS_ID, '');
    this.unknown = [this.#others];
  }

  /** How many are told apart now. */
  get size(): number {
    return this.#kept.size;
  }

  find(sql: string): Counted {
    return this.#find(sql, false);
  }

  /** @param text whose UTF-8 has been read as Latin-1 */
  findLatin1(text: string): Counted {
    return this.#find(text, true);
  }

  #find(text: string, isLatin1: boolean): Counted {
    if (text.length > REMEMBERED_MAX_CHARACTERS) return this.#read(text.slice(0, READ_MAX_CHARACTERS), isLatin1);
    const shape = shapeOf(text, isLatin1);
    const known = this.#known.use(shape);
    if (known !== undefined) return known;
    const counted = this.#read(text, isLatin1);
    this.#known.set(shape, counted);
    return counted;
  }

  #read(text: string, isLatin1: boolean): Counted {
    const sql = isLatin1 && NOT_ASCII.test(text) ? Buffer.from(text, 'latin1').toString() : text;
    const statements = normalizedStatements(this.#asWritten(sql), STATEMENTS_MAX);
    const counted = statements.map((each) => (NOT_COUNTED.test(each) ? undefined : this.#counterOf(each)));
    return statements.length < STATEMENTS_MAX ? counted : [...counted, this.#others];
  }

  #counterOf(text: string): StatementCounter {
    // Neither NUL nor half of a surrogate pair can be stored.
    const bytes = Buffer.from(text.replaceAll('\0', ''));
    const queryId = createHash('sha256').update(bytes).digest().readBigInt64BE().toString();
    const sql = bytes.toString().slice(0, QUERY_TEXT_MAX_CHARACTERS).replace(HALF_PAIR, '');
    return this.#kept.get(queryId) ?? this.#newCounter(queryId, sql);
  }

  #newCounter(queryId: string, sql: string): StatementCounter {
    return new StatementCounter(queryId, sql, (counter) => this.#keep(counter));
  }

  /** @returns what counts the statement from now on */
  #keep(counter: StatementCounter): StatementCounter {
    if (this.#kept.size === 0 && !this.#others.isKept) this.#started(this);
    const known = this.#kept.get(counter.queryId);
    if (known !== undefined) return known;
    const bytes = memoryOf(counter);
    if (counter === this.#others || this.#memory.bytes + bytes > this.#memory.maxBytes) {
      this.#others.isKept = true;
      return this.#others;
    }
    if (this.#kept.size >= TEXTS_MAX + SPARE) this.#makeRoom();
    this.#memory.bytes += bytes;
    this.#kept.set(counter.queryId, counter);
    counter.isKept = true;
    return counter;
  }

  /** Those that have taken the least time are counted with the others. */
  #makeRoom(): void {
    const least = [...this.#kept.values()].sort((a, b) => a.totalMs - b.totalMs).slice(0, SPARE);
    for (const counter of least) {
      const counts = counter.take();
      this.#forget(counter);
      this.#others.isKept = true;
      if (counts !== undefined) this.#others.add(counts);
    }
  }

  #forget(counter: StatementCounter): void {
    counter.isKept = false;
    this.#kept.delete(counter.queryId);
    this.#memory.bytes -= memoryOf(counter);
  }

  /** Takes all counts. Statements that have not run since the last time are forgotten. */
  takeAll(): readonly StatementCounts[] {
    const taken: StatementCounts[] = [];
    for (const counter of [...this.#kept.values(), this.#others]) {
      const counts = counter.take();
      if (counts !== undefined) taken.push(counts);
      else if (counter === this.#others) counter.isKept = false;
      else this.#forget(counter);
    }
    return taken;
  }

  /** Nothing has been counted lately, and nothing is kept. */
  get isIdle(): boolean {
    return this.#kept.size === 0 && !this.#others.isKept;
  }

  /** Counts again what was taken and could not be written. */
  giveBack(taken: readonly StatementCounts[]): void {
    for (const counts of taken) {
      const known = this.#kept.get(counts.queryId) ?? this.#newCounter(counts.queryId, counts.sql);
      this.#keep(counts.queryId === OTHERS_ID ? this.#others : known).add(counts);
    }
  }
}

function memoryOf({ sql }: StatementCounter): number {
  return COUNTER_BYTES + 2 * sql.length;
}

/** Statements that begin and end transactions, and those that only set something up. */
const NOT_COUNTED =
  /^(?:begin|start|commit|end|rollback|abort|savepoint|release|prepare|deallocate|set|reset|show|discard|listen|unlisten|notify)\b/i;
const NOT_ASCII = /[^\0-\x7f]/;
/** At the end of a text that has been cut. */
const HALF_PAIR = /[\ud800-\udbff]$/;

const ZERO = 0x30;

/**
 * A hash of a text, and of all that differ only in literals: normalized they are the same. Where comments, dollar quotes, parameters or
 * backslashes make it hard to tell what is a literal, every character counts. It takes a small part of the time that reading tokens takes.
 * Two texts of one organization that have the same hash by chance, or because it wants so, are counted as one.
 */
function shapeOf(text: string, isLatin1: boolean): number {
  let a = isLatin1 ? 1 : 3;
  let b = a + 1;
  let isInName = false;
  let isInWord = false;
  for (let at = 0; at < text.length; at += 1) {
    let code = text.charCodeAt(at);
    const kind = code < KINDS.length ? KINDS[code] : Kind.word;
    if (kind === Kind.word) isInWord = true;
    else if (kind === Kind.doubleQuote) isInName = !isInName;
    else if (kind === Kind.backslash) return rawHash(text, isLatin1);
    else if (isInName || kind === Kind.other) isInWord = false;
    else if (kind === Kind.digit) {
      const end = isInWord ? at : digitsEnd(text, at);
      if (end > at && !isWordPart(text.charCodeAt(end))) {
        at = end - 1;
        code = ZERO;
      } else isInWord = true;
    } else if (kind === Kind.quote) {
      const end = text.indexOf("'", at + 1);
      at = end < 0 ? text.length : end;
      isInWord = false;
    } else if (kind === Kind.dollar || isCommentStart(text, at, code)) return rawHash(text, isLatin1);
    else isInWord = false;
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x5bd1e995) ^ (b >>> 15);
  }
  return joinedHash(a, b);
}

/** What a character may begin. */
const Kind = { other: 0, word: 1, digit: 2, doubleQuote: 3, quote: 4, dollar: 5, backslash: 6, comment: 7 } as const;
/** By the character's code; those that are not ASCII belong to words. */
const KINDS = Uint8Array.from({ length: 128 }, (_, code) => {
  if (code >= ZERO && code < Code.Colon) return Kind.digit;
  if (code === Code.DoubleQuote) return Kind.doubleQuote;
  if (code === Code.Quote) return Kind.quote;
  if (code === Code.Dollar) return Kind.dollar;
  if (code === Code.Backslash) return Kind.backslash;
  if (code === Code.Minus || code === Code.Slash) return Kind.comment;
  return isWordPart(code) ? Kind.word : Kind.other;
});

function rawHash(text: string, isLatin1: boolean): number {
  let a = isLatin1 ? 5 : 7;
  let b = a + 1;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x5bd1e995) ^ (b >>> 15);
  }
  return joinedHash(a, b);
}

/** As many bits as a number has. */
function joinedHash(a: number, b: number): number {
  return (a >>> 0) * 2_097_152 + (b >>> 11);
}

function isWordPart(code: number): boolean {
  return code >= 0x80 || IDENTIFIER_PART[code] === 1;
}

function isCommentStart(text: string, at: number, code: number): boolean {
  const next = text.charCodeAt(at + 1);
  return (code === Code.Minus && next === Code.Minus) || (code === Code.Slash && next === Code.Star);
}
