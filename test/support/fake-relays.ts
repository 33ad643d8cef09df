import { Duplex } from 'node:stream';
import { onTestFinished, vi } from 'vitest';
import { FirstOptions } from '../../proxy/begun-transaction.ts';
import { ParseCache, STATEMENT_BOUNDS, StatementMemory } from '../../proxy/client-statements.ts';
import { Pins } from '../../proxy/pins.ts';
import { Relay } from '../../proxy/relay.ts';
import { BUFFER_BOUNDS, BufferBudget, type RelayEnd, type SessionServices } from '../../proxy/session-services.ts';
import type { BackendReceiver } from '../../src/backend/connection.ts';
import { LatencyBaseline, NO_SETTINGS, SessionState, type Settings } from '../../src/backend/session-state.ts';
import { OrganizationUsage } from '../../src/catalog/usage.ts';
import { ServiceError } from '../../src/errors.ts';
import { Multiplexer, type SharingLimits } from '../../src/multiplex/multiplexer.ts';
import { StatementRegistry } from '../../src/multiplex/statement-registry.ts';
import type { Lease } from '../../src/router/lease.ts';
import { NO_WAIT } from '../../src/router/router.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';

/** Relays over backends that say what they are told to. */
export class FakeBackend {
  readonly session = new SessionState();
  readonly processId = 7;
  readonly pendingBytes = 0;
  readonly isPaused = false;
  readonly parameters: ReadonlyMap<string, string> = new Map();
  /** Cancel requests that are on their way. */
  readonly cancels: (() => void)[] = [];
  released = 0;
  /** As it was given back last: nothing was left in its session. */
  clean: boolean | undefined;
  heard = '';
  receiver: BackendReceiver | undefined;
  readonly lease = {
    backend: this,
    release: async (clean: boolean) => {
      this.released += 1;
      this.clean = clean;
    },
    cancel: () => new Promise<void>((resolve) => this.cancels.push(resolve)),
    abandon: () => this.lease.cancel(),
    destroy() {},
    terminate() {},
  } as unknown as Lease;

  resume(): void {}
  pause(): void {}

  write(bytes: Buffer): void {
    this.heard += bytes.toString('latin1');
  }

  writeSoon(bytes: Buffer): void {
    this.write(bytes);
  }

  says(bytes: Buffer): void {
    this.receiver?.data(Buffer.from(bytes));
  }
}

export class FakeClient {
  readonly relay: Relay;
  heard = '';
  end: RelayEnd | undefined;
  /** What it is sent stays with who sends it. */
  isDeaf = false;
  #listensAgain: (() => void) | undefined;

  constructor(
    multiplexer: Multiplexer,
    lease: () => Lease | ServiceError | undefined,
    startup: Settings = NO_SETTINGS,
    room = new MemoryBudget(BUFFER_BOUNDS),
  ) {
    const stream = new Duplex({
      read() {},
      write: (bytes: Buffer, _, done) => {
        this.heard += bytes.toString('latin1');
        if (this.isDeaf) this.#listensAgain = done;
        else done();
      },
    });
    const host = {
      router: {
        tryLease: () => {
          const found = lease();
          return found instanceof ServiceError ? undefined : found;
        },
      },
      enqueue: (settle: (result: ServiceError) => void) => {
        const found = lease();
        if (found instanceof ServiceError) settle(found);
        return NO_WAIT;
      },
      mayKeepBusy: () => true,
      observe() {},
      tenant: { organization: { id: 'org' } },
      firstOptions: new FirstOptions(),
      multiplexer,
      registry: multiplexer.registry,
      parseCache: new ParseCache(),
      statementMemory: new StatementMemory(new MemoryReservation(new MemoryBudget(STATEMENT_BOUNDS), 'org')),
      bufferBudget: new BufferBudget(room, 'org'),
      processIds: { own: 1, moved() {} },
      rewriter: undefined,
      usage: new OrganizationUsage(),
      tellsAfterMs: Number.POSITIVE_INFINITY,
      answered() {},
      ended: (end: RelayEnd) => {
        this.end = end;
      },
    } satisfies Partial<Record<keyof SessionServices, unknown>> as unknown as SessionServices;
    this.relay = new Relay(stream, host, new Pins(startup, false, () => {}), new Map());
    stream.on('drain', () => this.relay.clientDrained());
  }

  listenAgain(): void {
    this.isDeaf = false;
    this.#listensAgain?.();
  }

  asks(sql: string): void {
    this.relay.clientData(encodeFrontend(`Query ${sql}`));
  }
}

export function newMultiplexer(limits: SharingLimits): Multiplexer {
  return new Multiplexer(limits, new StatementRegistry());
}

/** Of the statement that clients here ask for. */
export function latencyOf({ registry }: Multiplexer) {
  return registry.latencyOfQuery('SELECT 1', () => true);
}

/** However much time passes in this test: what takes it is not long, and nobody has waited for too long. */
export function nothingIsLong(): void {
  const spies = (['stallTimeoutMs', 'longMs'] as const).map((limit) =>
    vi.spyOn(LatencyBaseline.prototype, limit, 'get').mockReturnValue(1_000_000),
  );
  onTestFinished(() => {
    for (const spy of spies) spy.mockRestore();
  });
}

export function contendedMultiplexer(): Multiplexer {
  const multiplexer = newMultiplexer({ depth: 8, spread: 100 });
  for (let i = 0; i < 100; i += 1) latencyOf(multiplexer)?.ran(1, 10, multiplexer.baseline);
  return multiplexer;
}

/** The first one's request runs, and the others' are behind it. */
export function pipelineOf(clients: number, isLaterFree = true) {
  const [backend, later] = [new FakeBackend(), new FakeBackend()];
  const free = [backend.lease];
  const multiplexer = contendedMultiplexer();
  const all = Array.from({ length: clients }, () => new FakeClient(multiplexer, () => free.pop()));
  // All at once, so that the first one's request is a young one.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
  for (const client of all) client.asks('SELECT 1');
  clock.mockRestore();
  if (isLaterFree) free.push(later.lease);
  return { backend, later, multiplexer, clients: all };
}

export const READY = Buffer.from('5a0000000549', 'hex');
export const answer = (tag: string) =>
  Buffer.concat([Buffer.from(`C\0\0\0${String.fromCharCode(5 + tag.length)}${tag}\0`, 'latin1'), READY]);
