import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { makeScratch } from './scratch.ts';

/** A page in a browser of its own. */
export interface BrowserPage {
  open(url: string): Promise<void>;
  /** How wide the window is, and which theme its user prefers. */
  look(width: number, theme: 'light' | 'dark'): Promise<void>;
  /** The value of an expression in the page, awaited; it must be JSON. */
  evaluate(expression: string): Promise<unknown>;
  /** Presses a key in whatever has the focus. */
  type(text: string): Promise<void>;
  screenshot(): Promise<Buffer>;
  /** Errors of the page's script, and what its policy has refused. */
  readonly complaints: readonly string[];
  close(): Promise<void>;
}

interface Reply {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

const OPTIONS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe', '--no-first-run'];

/** @see https://chromedevtools.github.io/devtools-protocol/ */
export async function openChromium(): Promise<BrowserPage> {
  const scratch = await makeScratch();
  const browser = spawn('chromium', [...OPTIONS, `--user-data-dir=${scratch.path}`], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  });
  await once(browser, 'spawn');
  const pipe = new DevTools(browser);
  const { targetId } = await pipe.send('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await pipe.send('Target.attachToTarget', { targetId, flatten: true });
  const send = (method: string, params = {}) => pipe.send(method, params, String(sessionId));
  for (const domain of ['Page', 'Runtime', 'Log']) await send(`${domain}.enable`);
  return {
    complaints: pipe.complaints,
    async open(url) {
      const loaded = pipe.next('Page.loadEventFired');
      await send('Page.navigate', { url });
      await loaded;
    },
    async look(width, theme) {
      await send('Emulation.setDeviceMetricsOverride', { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
      await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: theme }] });
    },
    async evaluate(expression) {
      const { result, exceptionDetails } = await send('Runtime.evaluate', {
        expression,
        awaitPromise: true,
        returnByValue: true,
        userGesture: true,
      });
      if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
      return (result as { readonly value?: unknown }).value;
    },
    async type(text) {
      await send('Input.insertText', { text });
    },
    async screenshot() {
      return Buffer.from(String((await send('Page.captureScreenshot', { captureBeyondViewport: false })).data), 'base64');
    },
    async close() {
      const exit = once(browser, 'exit');
      browser.kill();
      await exit;
      await scratch.remove();
    },
  };
}

/** The protocol on the browser's pipes: JSON, each ended by NUL. */
class DevTools {
  readonly complaints: string[] = [];
  readonly #out: Writable;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  readonly #events = new Map<string, () => void>();
  #received = '';
  #id = 0;

  constructor({ stdio }: ChildProcess) {
    this.#out = stdio[3] as Writable;
    (stdio[4] as Readable).setEncoding('utf8').on('data', (text: string) => {
      const messages = (this.#received + text).split('\0');
      this.#received = messages.pop() ?? '';
      for (const message of messages) this.#take(JSON.parse(message));
    });
  }

  async send(method: string, params: object, sessionId?: string): Promise<Readonly<Record<string, unknown>>> {
    this.#id += 1;
    const id = this.#id;
    const answered = new Promise<Reply>((resolve) => this.#waiting.set(id, resolve));
    this.#out.write(`${JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) })}\0`);
    const { result, error } = await answered;
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  }

  next(event: string): Promise<void> {
    return new Promise((resolve) => this.#events.set(event, resolve));
  }

  #take(reply: Reply): void {
    if (reply.id !== undefined) this.#waiting.get(reply.id)?.(reply);
    else if (isComplaint(reply)) this.complaints.push(JSON.stringify(reply.params));
    else this.#events.get(reply.method ?? '')?.();
  }
}

function isComplaint({ method, params }: Reply): boolean {
  const entry = params?.entry as { readonly level: string } | undefined;
  return method === 'Runtime.exceptionThrown' || (method === 'Log.entryAdded' && entry?.level === 'error');
}
