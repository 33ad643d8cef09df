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
export async function readApiError(response: Response): Promise<ApiError> {
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
