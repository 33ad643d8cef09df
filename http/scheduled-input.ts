import type { Socket } from 'node:net';
import type { InputScheduler, InputSource, OrganizationInput } from '../src/runtime/input-scheduler.ts';

/** A part of this length holds up to two hundred requests, or seven hundred frames of a WebSocket, which take a few milliseconds. */
const PART_MIN_BYTES = 4_096;
/** A part of a large body or frame is handled in far less time, most of which is the same for a longer part. */
const PART_MAX_BYTES = 32_768;
/** Parts become longer while each takes less than this for every {@link PART_MIN_BYTES}. */
const QUICK_MS = 0.1;
/** Connections on which no valid key has been seen share the time of one organization. */
const UNKNOWN = '';

/** The parts of a socket's handle that are used here. */
interface ReadableHandle {
  /** Whether the stream wants input. */
  readonly reading: boolean;
  /** @returns 0, or the number of an error */
  readStart(): number;
  readStop(): number;
}

/**
 * Hands the input of a connection to Node's parser, or to that of WebSockets, in parts, each when the scheduler of input has time for it.
 * They handle all requests or frames of a chunk at once. So this stands between the socket's handle and its stream, which gets a part
 * where it would get a chunk. The handle is not read while parts are left.
 */
export class ScheduledInput implements InputSource {
  static readonly #ofSockets = new WeakMap<object, ScheduledInput>();
  readonly #socket: Socket;
  readonly #scheduler: InputScheduler;
  readonly #push: (chunk: Buffer | null) => boolean;
  readonly #handle: ReadableHandle | undefined;
  #owner = UNKNOWN;
  #input: OrganizationInput;
  #rest: Buffer | undefined;
  #partBytes = PART_MIN_BYTES;
  /** The client has ended its side, behind the rest. */
  #hasEnded = false;
  #isDeferred = false;

  private constructor(socket: Socket, scheduler: InputScheduler) {
    this.#socket = socket;
    this.#scheduler = scheduler;
    this.#input = scheduler.join(UNKNOWN);
    this.#push = socket.push.bind(socket);
    socket.push = (chunk: Buffer | null) => this.#take(chunk);
    const handle: ReadableHandle | null | undefined = Reflect.get(socket, '_handle');
    this.#handle = handle ?? undefined;
    if (handle != null) {
      const start = handle.readStart.bind(handle);
      // Both the stream and Node's server start it in several places.
      handle.readStart = () => (this.#rest === undefined ? start() : 0);
    }
    socket.on('resume', () => this.#scheduleRest());
    socket.once('close', () => {
      this.#rest = undefined;
      this.#input.leave();
    });
  }

  static of(socket: object): ScheduledInput | undefined {
    return ScheduledInput.#ofSockets.get(socket);
  }

  /**
   * Begins to hand on input in parts.
   * @param received bytes that have been read already; the socket must be paused, and hold no others
   */
  static start(socket: Socket, scheduler: InputScheduler, received: Buffer): void {
    const input = ScheduledInput.of(socket) ?? new ScheduledInput(socket, scheduler);
    ScheduledInput.#ofSockets.set(socket, input);
    input.#rest = input.#rest === undefined ? received : Buffer.concat([received, input.#rest]);
    // Node's parser reads from the handle itself until somebody else listens for data.
    socket.on('data', ignore);
    socket.off('data', ignore);
  }

  /** A valid key of this organization has been seen on the connection. */
  belongsTo(organizationId: string): void {
    if (organizationId === this.#owner || this.#socket.destroyed) return;
    this.#owner = organizationId;
    this.#input.leave();
    this.#input = this.#scheduler.join(organizationId);
  }

  /** Resolves when there has been time for what has been read so far, a part of it if that is long; undefined if nothing is left. */
  caughtUp(): Promise<void> | undefined {
    return this.#isDeferred ? new Promise((resolve) => this.schedule(resolve)) : undefined;
  }

  /** Does work for the connection when there is time for it, as for its input. */
  schedule(work: () => void): void {
    this.#input.defer({ handleInput: work });
  }

  handleInput(): void {
    this.#isDeferred = false;
    const rest = this.#rest;
    const { destroyed } = this.#socket;
    // Nothing of a connection that has been closed is carried out.
    if (destroyed) this.#rest = undefined;
    if (destroyed || rest === undefined || this.#socket.isPaused()) return;
    this.#rest = rest.length > this.#partBytes ? rest.subarray(this.#partBytes) : undefined;
    this.#handOn(rest.subarray(0, this.#partBytes));
    if (this.#rest !== undefined) this.#scheduleRest();
    else if (this.#hasEnded) this.#push(null);
    else if (this.#handle?.reading === true) this.#handle.readStart();
  }

  /** Parts become longer only where a valid key has been seen: large bodies and copies come from there. */
  #handOn(part: Buffer): void {
    const before = this.#scheduler.now();
    this.#push(part);
    const quickMs = (QUICK_MS * part.length) / PART_MIN_BYTES;
    if (this.#owner === UNKNOWN || this.#scheduler.now() - before >= quickMs) this.#partBytes = PART_MIN_BYTES;
    else if (part.length === this.#partBytes) this.#partBytes = Math.min(2 * part.length, PART_MAX_BYTES);
  }

  /** @returns true: the handle is stopped here, and not by the stream */
  #take(chunk: Buffer | null): boolean {
    if (this.#rest === undefined && chunk === null) return this.#push(chunk);
    if (chunk === null) this.#hasEnded = true;
    else this.#rest = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#handle?.readStop();
    this.#scheduleRest();
    return true;
  }

  /** Always in a later turn of the event loop: before a key has been seen, a flood looks like a client's first request. */
  #scheduleRest(): void {
    if (this.#rest === undefined || this.#isDeferred || this.#socket.isPaused()) return;
    this.#isDeferred = true;
    this.#input.begin();
    this.#input.defer(this);
  }
}

function ignore(): void {}
