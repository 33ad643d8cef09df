import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import pg from 'pg';
import { type AdminLogin, sessionConfig } from '../../placement/admin-connection.ts';

const ASK_EVERY_MS = 1_000;
const TIMEOUT_MS = 3_000;
const AGAIN_MS = { first: 50, longest: 1_000 };

/**
 * Whether a server answers. It is asked once a second, on a connection of its own. One that does not answer in time is down until it
 * does; if only the connection has been lost, another one is tried first.
 */
export class Health {
  readonly #login: AdminLogin;
  readonly #changed: (isUp: boolean) => void;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;
  #isUp = true;

  /** @param changed called when it does not answer any more, and when it does again */
  constructor(login: AdminLogin, changed: (isUp: boolean) => void) {
    this.#login = login;
    this.#changed = changed;
    this.#watching = this.#watch();
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    for (let pauseMs = AGAIN_MS.first; !signal.aborted; ) {
      const lost = await this.#ask();
      if (signal.aborted) return;
      if (lost !== 'connection') this.#set(false);
      pauseMs = this.#isUp ? AGAIN_MS.first : Math.min(AGAIN_MS.longest, 2 * pauseMs);
      await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Asks until there is no answer. @returns what has been lost: an open connection, or the server */
  async #ask(): Promise<'connection' | 'server'> {
    const { signal } = this.#stop;
    const session = new pg.Client({ ...sessionConfig(this.#login), connectionTimeoutMillis: TIMEOUT_MS });
    let isConnected = false;
    let isLost = false;
    session.on('error', () => {
      isLost = true;
    });
    try {
      await session.connect();
      for (isConnected = true; !signal.aborted; ) {
        if (!(await answers(session))) return 'server';
        this.#set(true);
        await delay(ASK_EVERY_MS, undefined, { signal, ref: false }).catch(() => {});
        if (isLost) return 'connection';
      }
      return 'connection';
    } catch {
      return isConnected && isLost ? 'connection' : 'server';
    } finally {
      // A server that does not answer does not close the connection either.
      void session.end().catch(() => {});
      session.connection.stream.destroy();
    }
  }

  #set(isUp: boolean): void {
    if (isUp === this.#isUp) return;
    this.#isUp = isUp;
    this.#changed(isUp);
  }
}

/** @throws Error when the connection is lost */
async function answers(session: pg.Client): Promise<boolean> {
  let isAnswered = false;
  const answer = session.query('').then(() => {
    isAnswered = true;
  });
  const late = new AbortController();
  await Promise.race([answer, delay(TIMEOUT_MS, undefined, { signal: late.signal, ref: false }).catch(() => {})]);
  late.abort();
  // If this process has been kept from reading, the answer may be there.
  if (!isAnswered) await Promise.race([answer, nextTurn().then(nextTurn)]);
  answer.catch(() => {});
  return isAnswered;
}
