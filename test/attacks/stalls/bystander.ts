import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';

/*
 * Another organization's clients, in a process of their own: they run `SELECT 1`, log in, and ask GET /healthz, again and again. To
 * whoever asks they tell how long each of these has taken at most since they were last asked.
 */

export interface Waits {
  readonly query: number;
  readonly login: number;
  readonly health: number;
}

const PAUSE_MS = { query: 2, login: 20, health: 5 };

const [httpUrl = '', port = '', user = '', password = ''] = process.argv.slice(2);
const config = { host: '127.0.0.1', port: Number(port), user, database: user, password };

/** What is done again and again, and how long that has taken at most: what is under way counts. */
class Repeated {
  #longest = 0;
  #startedAt = 0;

  constructor(pauseMs: number, once: () => Promise<unknown>) {
    void this.#repeat(pauseMs, once);
  }

  take(): number {
    this.#look();
    const longest = this.#longest;
    this.#longest = 0;
    if (this.#startedAt > 0) this.#startedAt = performance.now();
    return longest;
  }

  async #repeat(pauseMs: number, once: () => Promise<unknown>): Promise<void> {
    for (;;) {
      this.#startedAt = performance.now();
      // A service that stands still for long may break off what it has not begun: that is no end of the waiting.
      await once().catch(() => {});
      this.#look();
      this.#startedAt = 0;
      await pause(pauseMs);
    }
  }

  #look(): void {
    if (this.#startedAt > 0) this.#longest = Math.max(this.#longest, performance.now() - this.#startedAt);
  }
}

const pool = new pg.Pool({ ...config, max: 1 });
pool.on('error', () => {});
await pool.query('SELECT 1');
const repeated = {
  query: new Repeated(PAUSE_MS.query, () => pool.query('SELECT 1')),
  login: new Repeated(PAUSE_MS.login, async () => {
    const client = new pg.Client(config);
    client.on('error', () => {});
    await client.connect();
    await client.end();
  }),
  health: new Repeated(PAUSE_MS.health, async () => (await fetch(`${httpUrl}/healthz`)).text()),
};

process.on('message', () => {
  const { query, login, health } = repeated;
  const waits: Waits = { query: query.take(), login: login.take(), health: health.take() };
  process.send?.(waits);
});
process.send?.('ready');
