import { elementsOf, membersOf } from './raw-json.ts';

/** The key that calls are made with. Only memory has it; session/ puts it here and takes it away. */
let key: string | undefined;
/** Asks for another key. @returns whether there is one now */
let askForKey: () => Promise<boolean> = async () => false;

/** Makes all further calls with this key; undefined: with none. */
export function setKey(next: string | undefined): void {
  key = next;
}

/** Sets what is asked for another key when a call is refused with 401. */
export function whenUnauthorized(ask: () => Promise<boolean>): void {
  askForKey = ask;
}

interface CallOptions {
  readonly body?: unknown;
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** The call only reads, so it may be repeated; absent: as its method says. */
  readonly isSafe?: boolean;
  /** Another key than the session's, or null for none; a refusal is then an error like any other. */
  readonly key?: string | null;
  /** The call is made even where the page is left meanwhile. */
  readonly outlivesPage?: boolean;
}

/** `api/query` and so on, below whatever path the page is served from. */
export function urlOf(path: string): URL {
  return new URL(path, document.baseURI);
}

/** Calls the API. @returns the reply's document @throws ApiError */
export async function call<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
  return readJson(await callForResponse(method, path, options));
}

/** As {@link call}, for the reply's text: numbers and JSON values keep their digits and white space. */
export async function callText(method: string, path: string, options: CallOptions = {}): Promise<string> {
  return whole(await callForResponse(method, path, options), (reply) => reply.text());
}

/** As {@link call}, for a reply whose headers are needed, or that is read as it arrives. @throws ApiError for every status but 2xx and 304 */
export async function callForResponse(method: string, path: string, options: CallOptions = {}): Promise<Response> {
  const response = await send(method, path, options);
  if (response.ok || response.status === 304) return response;
  const error = await readApiError(response);
  // Such a call has been refused before anything was done. A key that ended on the way may have done something.
  if (error.problem.code === 'unauthorized' && options.key === undefined && (await askForKey()))
    return callForResponse(method, path, options);
  throw error;
}

/** The document of a reply to {@link callForResponse}. @throws ApiError when it breaks off */
export async function readJson<T>(response: Response): Promise<T> {
  return (await whole(response, (reply) => reply.json())) as T;
}

async function send(method: string, path: string, options: CallOptions): Promise<Response> {
  const { body, accept, headers, signal, isSafe = method === 'GET', key: other = key, outlivesPage = false } = options;
  try {
    return await fetch(urlOf(path), {
      method,
      headers: {
        accept: accept ?? 'application/json',
        ...(other === undefined || other === null ? {} : { authorization: `Bearer ${other}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      keepalive: outlivesPage,
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw noAnswer(isSafe);
  }
}

/** A request may have arrived even though no reply came back. */
function noAnswer(isSafe: boolean): ApiError {
  const doubt = isSafe ? '' : ' It is not known whether the call was carried out';
  return unreachable(`Postern cannot be reached.${doubt}`, isSafe);
}

async function whole<T>(response: Response, read: (response: Response) => Promise<T>): Promise<T> {
  try {
    return await read(response);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw unreachable('the reply broke off before its end', false);
  }
}

/** What the API says of an error. @see https://www.rfc-editor.org/rfc/rfc9457 */
export interface Problem {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly code: string;
  readonly sqlstate?: string;
  readonly hint?: string;
  readonly requestId?: string;
  readonly retryable?: boolean;
  readonly statementIndex?: number;
  /** What failed: a statement, COMMIT, or in a dry run what undoes it or its repetition. */
  readonly phase?: 'statement' | 'commit' | 'rollback' | 'repeat';
  readonly line?: number;
  readonly column?: number;
  readonly statementsApplied?: number;
  readonly transactionStatus?: 'rolled_back';
  readonly postgres?: {
    readonly severity: string;
    readonly detail?: string;
    readonly hint?: string;
    readonly position?: number;
    readonly line?: number;
    readonly column?: number;
    readonly where?: string;
    readonly schema?: string;
    readonly table?: string;
    readonly columnName?: string;
    readonly constraint?: string;
  };
}

/** A call that has failed. `message` is a sentence for people. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly problem: Problem;
  /** When the server asks to wait. */
  readonly retryAfterS: number | undefined;

  constructor(problem: Problem, retryAfterS?: number) {
    super(sentenceOf(problem));
    this.problem = problem;
    this.retryAfterS = retryAfterS;
  }

  /** Nothing has happened, and the same call may succeed later. */
  get isRetryable(): boolean {
    return this.problem.retryable === true;
  }
}

/** There was no answer, or it broke off. */
export function unreachable(detail: string, retryable: boolean): ApiError {
  return new ApiError({ status: 0, title: 'No connection', detail, code: 'unreachable', retryable });
}

/** The problem document of a reply, or one made from its status: a proxy's error page is none. */
async function readApiError(response: Response): Promise<ApiError> {
  const retryAfterS = Number(response.headers.get('retry-after')) || undefined;
  const problem = await response.json().catch(() => undefined);
  if (isProblem(problem)) return new ApiError(problem, retryAfterS);
  const detail = `the server answered ${response.status} ${response.statusText}`.trim();
  const retryable = response.status === 429 || response.status === 503;
  return new ApiError({ status: response.status, title: 'Unexpected answer', detail, code: 'unexpected', retryable }, retryAfterS);
}

export function isProblem(value: unknown): value is Problem {
  return typeof value === 'object' && value !== null && 'code' in value && 'detail' in value;
}

/** What to show for anything that was thrown. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const detail = error instanceof Error ? error.message : String(error);
  if (error instanceof TypeError && NOT_IMPORTED.test(detail)) return notLoaded();
  return new ApiError({ status: 0, title: 'The console failed', detail, code: 'console' });
}

/** What Chromium, Firefox and Safari say of an `import()` whose file did not come. */
const NOT_IMPORTED = /dynamically imported module|importing a module script failed/i;

/** A file of the console did not come. After an upgrade the files of the page that is open are no longer there. */
function notLoaded(): ApiError {
  const hint = 'If Postern has been upgraded since this page was opened, reload the page.';
  const detail = 'this part of the console could not be loaded';
  return new ApiError({ status: 0, title: 'No connection', detail, hint, code: 'unreachable', retryable: true });
}

/** Whether the caller has given up the call. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

function sentenceOf({ detail, title }: Problem): string {
  const text = detail || title;
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** For the header `Idempotency-Key`. Pages without TLS have no `crypto.randomUUID`. */
export function newIdempotencyKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The rows of a reply in `rowMode: array`. */
export function rowsOf(reply: string): readonly (readonly string[])[] {
  const [at] = membersOf(reply).get('rows') ?? [];
  return at === undefined ? [] : elementsOf(reply, at).map((row) => elementsOf(row));
}

/**
 * The lines of a reply as they come, several at a time.
 * @throws ApiError when the reply breaks off
 */
export async function* linesOf(response: Response): AsyncGenerator<readonly string[]> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const decoder = new TextDecoder();
  let begun: string[] = [];
  try {
    for (;;) {
      const { done, value } = await readNext(reader);
      if (done) break;
      const [first = '', ...rest] = decoder.decode(value, { stream: true }).split('\n');
      begun.push(first);
      const last = rest.pop();
      if (last === undefined) continue;
      // One line may come in thousands of parts.
      yield [begun.join(''), ...rest];
      begun = [last];
    }
    const last = begun.join('') + decoder.decode();
    if (last !== '') yield [last];
  } finally {
    // Whoever stops reading gives up the call, and the server cancels its statement.
    await reader.cancel().catch(() => undefined);
  }
}

async function readNext(reader: ReadableStreamDefaultReader<Uint8Array>) {
  try {
    return await reader.read();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw unreachable('the reply broke off before its end', false);
  }
}
