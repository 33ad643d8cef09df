import { type ApiError, isAbort, readApiError, unreachable } from './api-error.ts';

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

export interface CallOptions {
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
