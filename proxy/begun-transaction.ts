import { type BackendReceiver, NO_RECEIVER } from '../src/backend/connection.ts';
import { areEqual } from '../src/backend/session-state.ts';
import type { TransactionStatus } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { FrontendType, queryMessage } from '../src/protocol/frontend.ts';
import { ReplyReader, replyFrames } from '../src/protocol/reply-reader.ts';
import type { Lease, Tenant } from '../src/router/lease.ts';
import type { Router } from '../src/router/router.ts';
import { areAmong, areSame, type CustomOptions, NO_OPTIONS, UNNAMED_OPTIONS, withOptions } from '../src/syntax/session-traits.ts';
import { optionsSetFirst } from '../src/syntax/side-effects.ts';
import type { Pins } from './pins.ts';

/** After this many second backends that were of no use, no more are taken. */
const MAX_IN_VAIN = 8;
/** For this long a second backend is kept for the client's first statement. */
const KEPT_MS = 100;
/** A backend that has not rolled back by then is given up. */
const ROLLBACK_MS = 5_000;
const TEXT_MAX_BYTES = 1_024;
const BEGIN = /^(?:begin|start\s+transaction)\b[^;]*;?\s*$/i;
/** One statement that PostgreSQL can read in every encoding. */
const PLAIN_STATEMENT = /^[\s\x20-\x3a\x3c-\x7e]*;?\s*$/;
const FRAMES = replyFrames(65_536);
const ROLLBACK = queryMessage('ROLLBACK');

/** The customized options that sessions of one role of an organization set first in a transaction, although they had not set them before. */
export class FirstOptions {
  expected = NO_OPTIONS;
  #inVain = 0;

  set(options: CustomOptions): void {
    this.expected = options;
    this.#inVain = 0;
  }

  expectedInVain(): void {
    this.#inVain += 1;
    if (this.#inVain >= MAX_IN_VAIN) this.expected = NO_OPTIONS;
  }
}

interface BeginningSession {
  readonly services: { readonly router: Pick<Router, 'tryLease'>; readonly tenant: Tenant; readonly firstOptions: FirstOptions };
  readonly pins: Pins;
  /** The transaction that was {@link BegunTransaction.isAwaited} no longer is. */
  beganElsewhere(begun: BegunTransaction): void;
}

/**
 * A session's transaction in which nothing has been done except BEGIN. If it now sets customized options that the session has not set
 * before, its backend could not be lent to other sessions afterwards. So where that is expected, and a backend is idle in which these
 * options exist already, the transaction begins there too, at the same time. The client's first statement decides where it goes on; the
 * other one is rolled back.
 */
export class BegunTransaction {
  readonly #session: BeginningSession;
  #second: SecondTransaction | undefined;

  /** @param begin the client's BEGIN */
  constructor(session: BeginningSession, { buffer, start, end }: FrameScanner) {
    this.#session = session;
    const lease = this.#findSecond();
    if (lease === undefined) return;
    const settled = () => session.beganElsewhere(this);
    this.#second = new SecondTransaction(lease, Buffer.from(buffer.subarray(start, end)), settled);
  }

  #findSecond(): Lease | undefined {
    const { services, pins } = this.#session;
    const { expected } = services.firstOptions;
    if (expected === NO_OPTIONS || !pins.isShareable || pins.sequences?.isReserved === true) return undefined;
    if (areAmong(expected, pins.customOptions)) return undefined;
    const options = withOptions(pins.customOptions, expected);
    const lease = services.router.tryLease(services.tenant, 'wire', undefined, options);
    if (lease === undefined) return undefined;
    const { session, parameters } = lease.backend;
    const isAlike = areEqual(session.settings, pins.settings) && parameters.get(STRINGS) === pins.startStrings;
    if (isAlike && areSame(session.customOptions, options)) return lease;
    void lease.release(true);
    return undefined;
  }

  /** The client must not be told yet that its transaction has begun: the second one would have a later `now()`. */
  get isAwaited(): boolean {
    return this.#second?.isAwaited === true;
  }

  /**
   * The client's next message has arrived.
   * @param statement undefined: it is none that could go on elsewhere
   * @returns the backend on which the transaction goes on, if that is the second one
   */
  next(statement: FrameScanner | undefined): Lease | undefined {
    const { services, pins } = this.#session;
    const options = statement === undefined ? NO_OPTIONS : optionsSetBy(statement);
    const isNew = !areAmong(options, pins.customOptions);
    if (isNew) services.firstOptions.set(options);
    const second = this.#second;
    if (second === undefined) return undefined;
    if (isNew && areAmong(second.lease.backend.session.customOptions, withOptions(pins.customOptions, options))) {
      const lease = second.take();
      if (lease !== undefined) return lease;
    } else services.firstOptions.expectedInVain();
    second.rollBack();
    return undefined;
  }
}

const STRINGS = 'standard_conforming_strings';

/** Whether the message is a Query that begins a transaction and does nothing else, behind which nothing has arrived. */
export function beginsTransaction(scanner: FrameScanner): boolean {
  const { buffer, start, end } = scanner;
  const at = start + HEADER_BYTES;
  const letters = at + 2 > end ? 0 : buffer.readUInt16BE(at) | LOWER_CASE;
  return (letters === BE || letters === ST) && end === buffer.length && isShortQuery(scanner) && BEGIN.test(textOf(scanner));
}

const LOWER_CASE = 0x2020;
const BE = 0x6265;
const ST = 0x7374;

function isShortQuery({ type, first, last, length }: FrameScanner): boolean {
  return type === FrontendType.Query && first && last && length <= TEXT_MAX_BYTES;
}

function textOf({ buffer, start, end }: FrameScanner): string {
  return buffer.toString('latin1', start + HEADER_BYTES, end - 1);
}

/** The customized options that a Query sets before anything could read them. */
function optionsSetBy(scanner: FrameScanner): CustomOptions {
  const sql = isShortQuery(scanner) ? textOf(scanner) : '';
  if (!PLAIN_STATEMENT.test(sql)) return NO_OPTIONS;
  const options = optionsSetFirst([{ sql }]);
  return options.has(UNNAMED_OPTIONS) ? NO_OPTIONS : options;
}

/** Rolls back a transaction in which nothing has been done, and releases its backend. */
export function leaveTransaction(lease: Lease): void {
  new SecondTransaction(lease).rollBack();
}

/** A transaction in which nothing has been done except BEGIN, on a backend that no session uses. It rolls itself back after a while. */
class SecondTransaction implements BackendReceiver {
  readonly lease: Lease;
  readonly #reader: ReplyReader;
  readonly #settled: () => void;
  #timer: NodeJS.Timeout;
  #hasBegun: boolean;
  #isUnwanted = false;

  /**
   * @param message begins it; undefined: it has begun
   * @param settled called when it has begun, or is given up before
   */
  constructor(lease: Lease, message?: Buffer, settled = () => {}) {
    const { backend } = lease;
    this.lease = lease;
    this.#settled = settled;
    this.#reader = new ReplyReader(FRAMES, { ready: (status) => this.#ready(status), failed: () => this.closed() });
    this.#hasBegun = message === undefined;
    this.#timer = setTimeout(() => this.rollBack(), KEPT_MS).unref();
    backend.receiver = this;
    backend.session.unnamed = undefined;
    if (backend.isPaused) backend.resume();
    if (message !== undefined) backend.write(message);
  }

  get isAwaited(): boolean {
    return !this.#hasBegun && !this.#isUnwanted;
  }

  data(chunk: Buffer): void {
    try {
      this.#reader.push(chunk);
      while (this.#reader.next());
    } catch {
      this.closed();
    }
  }

  drain(): void {}

  /** The backend is lost, or in a state that is not known. */
  closed(): void {
    this.#over();
    this.lease.destroy();
    if (this.isAwaited) this.#giveUp();
  }

  #ready(status: TransactionStatus): void {
    if (!this.#hasBegun && status === 'T') {
      this.#hasBegun = true;
      if (this.#isUnwanted) this.lease.backend.write(ROLLBACK);
      else this.#settled();
    } else if (this.#hasBegun && this.#isUnwanted && status === 'I') {
      this.#over();
      void this.lease.release(true);
    } else this.closed();
  }

  rollBack(): void {
    if (this.#isUnwanted) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.closed(), ROLLBACK_MS).unref();
    if (this.#hasBegun) this.lease.backend.write(ROLLBACK);
    this.#giveUp();
  }

  #giveUp(): void {
    const { isAwaited } = this;
    this.#isUnwanted = true;
    if (isAwaited) this.#settled();
  }

  /** @returns undefined if it is not to be had any more */
  take(): Lease | undefined {
    if (!this.#hasBegun || this.#isUnwanted || this.lease.backend.closed) return undefined;
    this.#over();
    return this.lease;
  }

  #over(): void {
    clearTimeout(this.#timer);
    this.lease.backend.receiver = NO_RECEIVER;
  }
}
