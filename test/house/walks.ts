import type { Profiler } from 'node:inspector';
import { Session as Inspector } from 'node:inspector/promises';
import { fileURLToPath } from 'node:url';

/** What one request makes of the code. */
export interface Walk {
  /** With the number of calls of functions in each. */
  readonly files: ReadonlyMap<string, number>;
  /** The files of the functions called, one after the other. */
  readonly path: readonly string[];
}

/** Requests are sent again and again: what happens now and then is not part of them. */
const ATTEMPTS = 12;
/** Breakpoints take their time. */
const PATH_ATTEMPTS = 6;

/** Watches the compiled code of this process. Calls that are inlined count too. */
export class Walks {
  readonly #inspector = new Inspector();
  readonly #compiled: string;

  /** @param compiled the folder that the repository was compiled into, with a slash at its end */
  constructor(compiled: string) {
    this.#compiled = compiled;
    this.#inspector.connect();
  }

  /** @param settle what to do before each request, so that it is not done in the middle of one */
  async of(request: () => Promise<unknown>, settle: () => Promise<unknown>): Promise<Walk> {
    for (let i = 0; i < ATTEMPTS; i += 1) await request();
    const covered = await this.#covered(request, settle);
    return { files: callsOf(covered), path: await this.#path(covered, request, settle) };
  }

  close(): void {
    this.#inspector.disconnect();
  }

  async #covered(request: () => Promise<unknown>, settle: () => Promise<unknown>): Promise<readonly Called[]> {
    await this.#inspector.post('Profiler.enable');
    await this.#inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    let fewest: readonly Called[] | undefined;
    for (let i = 0; i < ATTEMPTS; i += 1) {
      await settle();
      await this.#inspector.post('Profiler.takePreciseCoverage');
      await request();
      const { result } = await this.#inspector.post('Profiler.takePreciseCoverage');
      const called = result.flatMap((script) => this.#called(script));
      if (fewest === undefined || callsOf(called).size < callsOf(fewest).size) fewest = called;
    }
    await this.#inspector.post('Profiler.disable');
    return fewest ?? [];
  }

  /** The functions of the product in this script that have been called; not what the module does when it is loaded. */
  #called({ scriptId, url, functions }: Profiler.ScriptCoverage): readonly Called[] {
    if (!url.startsWith('file:') || !fileURLToPath(url).startsWith(this.#compiled)) return [];
    const file = fileURLToPath(url).slice(this.#compiled.length).replace(/\.js$/, '.ts');
    if (!/^(?:src|proxy|http)\//.test(file)) return [];
    return functions.flatMap(({ functionName, ranges: [range] }) =>
      range !== undefined && range.count > 0 && functionName !== ''
        ? [{ scriptId, file, start: range.startOffset, calls: range.count }]
        : [],
    );
  }

  /** Breakpoints whose condition notes that they were come by, and is false. */
  async #path(covered: readonly Called[], request: () => Promise<unknown>, settle: () => Promise<unknown>): Promise<readonly string[]> {
    const passed: number[] = [];
    Object.assign(globalThis, { passed });
    await this.#inspector.post('Debugger.enable');
    const sources = new Map<string, string>();
    for (const [index, { scriptId, start }] of covered.entries()) {
      const source = sources.get(scriptId) ?? (await this.#inspector.post('Debugger.getScriptSource', { scriptId })).scriptSource;
      sources.set(scriptId, source);
      const before = source.slice(0, start).split('\n');
      const location = { scriptId, lineNumber: before.length - 1, columnNumber: before.at(-1)?.length ?? 0 };
      // Two functions may begin at the same place: one that does nothing but return another.
      await this.#inspector
        .post('Debugger.setBreakpoint', { location, condition: `globalThis.passed.push(${index}) < 0` })
        .catch(() => undefined);
    }
    let shortest: readonly number[] | undefined;
    for (let i = 0; i < PATH_ATTEMPTS; i += 1) {
      await settle();
      passed.length = 0;
      await request();
      if (shortest === undefined || passed.length < shortest.length) shortest = [...passed];
    }
    await this.#inspector.post('Debugger.disable');
    return (shortest ?? []).map((index) => covered[index]?.file ?? '');
  }
}

interface Called {
  readonly scriptId: string;
  readonly file: string;
  /** Its offset in the script. */
  readonly start: number;
  readonly calls: number;
}

function callsOf(covered: readonly Called[]): ReadonlyMap<string, number> {
  const calls = new Map<string, number>();
  for (const one of covered) calls.set(one.file, (calls.get(one.file) ?? 0) + one.calls);
  return calls;
}

/** @returns how often the next function is in another file than the last one, and how often in one that has been left before */
export function turnsOf(path: readonly string[]): { readonly changes: number; readonly returns: number } {
  const seen = new Set(path.slice(0, 1));
  let [changes, returns] = [0, 0];
  for (const [index, file] of path.entries()) {
    if (index === 0 || file === path[index - 1]) continue;
    changes += 1;
    if (seen.has(file)) returns += 1;
    seen.add(file);
  }
  return { changes, returns };
}
