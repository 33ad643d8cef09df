import { signal } from '@preact/signals';
import { asApiError, call, isAbort } from '../../api/client.ts';
import { type FileSink, openFileSink } from '../../parts/downloads.ts';

/** `GET /api/audit` */
export interface AuditEntry {
  readonly id: string;
  readonly seq: number;
  readonly occurredAt: string;
  readonly action: string;
  readonly surface: string;
  readonly actor: { readonly keyId: string | null; readonly keyPrefix: string | null };
  readonly sourceIp: string | null;
  readonly userAgent: string | null;
  readonly applicationName: string | null;
  readonly requestId: string | null;
  readonly statement?: {
    readonly sql: string;
    readonly sqlHash: string;
    readonly command: string | null;
    readonly paramCount: number | null;
  };
  readonly session?: { readonly statements: number; readonly bytesIn: number; readonly bytesOut: number; readonly reason: string };
  readonly outcome: {
    readonly status: 'ok' | 'error';
    readonly httpStatus: number | null;
    readonly sqlstate: string | null;
    readonly rowCount: number | null;
    readonly durationMs: number | null;
  };
  readonly prevHash: string;
  readonly hash: string;
}

export interface AuditPage {
  readonly data: readonly AuditEntry[];
  readonly hasMore: boolean;
  readonly nextCursor: string | null;
  readonly unreadable?: readonly { readonly fromSeq: number; readonly toSeq: number }[];
}

/** `GET /api/audit/verify` */
export interface AuditVerification {
  readonly ok: boolean;
  readonly count: number;
  readonly headSeq: number;
  readonly headHash: string;
  readonly firstBad?: { readonly seq: number; readonly id?: string; readonly reason: string };
}

/** The body of `POST /api/audit`. */
interface AuditSearch {
  readonly limit: number;
  readonly after?: string;
  readonly action?: string;
  readonly outcome?: string;
  readonly since?: string;
  readonly until?: string;
  readonly requestId?: string;
}

export function searchAudit(body: AuditSearch, signal: AbortSignal): Promise<AuditPage> {
  return call('POST', 'api/audit', { body, signal, isSafe: true });
}

export function verifyAudit(signal: AbortSignal): Promise<AuditVerification> {
  return call('GET', 'api/audit/verify', { signal });
}

interface ApiDescription {
  readonly paths: {
    readonly '/api/audit': {
      readonly get: { readonly parameters: readonly { readonly name: string; readonly schema: { readonly enum?: readonly string[] } }[] };
    };
  };
}

let actions: readonly string[] | undefined;

/** What entries may be about, from the API's description of itself. */
export async function auditActions(signal: AbortSignal): Promise<readonly string[]> {
  if (actions !== undefined) return actions;
  const { paths } = await call<ApiDescription>('GET', 'api/openapi.json', { signal });
  const found = paths['/api/audit'].get.parameters.find(({ name }) => name === 'action')?.schema.enum ?? [];
  actions = found.toSorted();
  return actions;
}

type Period = 'any' | 'hour' | 'day' | 'week' | 'between';

/** What stands in the fields; empty: any. */
export interface Filters {
  readonly action: string;
  readonly outcome: '' | 'ok' | 'error';
  readonly period: Period;
  /** What `datetime-local` fields hold: the time of this browser. */
  readonly since: string;
  readonly until: string;
  readonly requestId: string;
}

export const NO_FILTERS: Filters = { action: '', outcome: '', period: 'any', since: '', until: '', requestId: '' };

export const filters = signal<Filters>(NO_FILTERS);
/** Where the pages before this one began, the newest first. */
export const cursors = signal<readonly string[]>([]);

/** Other filters begin with the newest entry. */
export function setFilters(change: Partial<Filters>): void {
  filters.value = { ...filters.value, ...change };
  cursors.value = [];
}

export const PERIODS: readonly (readonly [Period, string])[] = [
  ['any', 'at any time'],
  ['hour', 'in the last hour'],
  ['day', 'in the last 24 hours'],
  ['week', 'in the last 7 days'],
  ['between', 'between …'],
];

const HOURS: Readonly<Partial<Record<Period, number>>> = { hour: 1, day: 24, week: 168 };

export function searchOf({ action, outcome, period, since, until, requestId }: Filters, now = Date.now()): Omit<AuditSearch, 'limit'> {
  const hours = HOURS[period];
  const from = hours === undefined ? instantOf(period === 'between' ? since : '') : new Date(now - hours * 3_600_000).toISOString();
  const to = instantOf(period === 'between' ? until : '');
  return {
    ...(action === '' ? {} : { action }),
    ...(outcome === '' ? {} : { outcome }),
    ...(from === undefined ? {} : { since: from }),
    ...(to === undefined ? {} : { until: to }),
    ...(requestId.trim() === '' ? {} : { requestId: requestId.trim() }),
  };
}

function instantOf(local: string): string | undefined {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** The most that the API gives in a page. */
const PAGE_ENTRIES = 1_000;
const RETRIES_MAX = 5;
const RETRY_AFTER_S = 1;

interface Export {
  readonly filters: Omit<AuditSearch, 'limit'>;
  readonly signal: AbortSignal;
  readonly onProgress: (entries: number) => void;
}

interface Exported {
  readonly entries: number;
  /** Those whose place in the database cannot be read. */
  readonly unreadable: number;
}

/**
 * Saves all entries that the filters find as NDJSON, page by page, the newest first.
 * @returns undefined when nobody has chosen a file
 * @throws ApiError; there is no file then
 */
export async function exportAudit({ filters, signal, onProgress }: Export): Promise<Exported | undefined> {
  const day = new Date().toISOString().slice(0, 10);
  const sink = await openFileSink(`audit-${day}.ndjson`, 'application/x-ndjson');
  if (sink === undefined) return undefined;
  let exported: Exported = { entries: 0, unreadable: 0 };
  try {
    for await (const page of eachPage(filters, signal)) {
      await write(sink, page);
      exported = { entries: exported.entries + page.data.length, unreadable: exported.unreadable + unreadableIn(page) };
      onProgress(exported.entries);
    }
  } catch (error) {
    await sink.abort();
    throw error;
  }
  await sink.close();
  return exported;
}

async function* eachPage(filters: Export['filters'], signal: AbortSignal): AsyncGenerator<AuditPage> {
  let after: string | null = null;
  do {
    const page: AuditPage = await patiently(
      () => searchAudit({ ...filters, limit: PAGE_ENTRIES, ...(after === null ? {} : { after }) }, signal),
      signal,
    );
    yield page;
    after = page.hasMore ? page.nextCursor : null;
  } while (after !== null);
}

/** A long export does not end because the server is busy for a moment. */
async function patiently<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (isAbort(error)) throw error;
      const { isRetryable, retryAfterS = RETRY_AFTER_S } = asApiError(error);
      if (!isRetryable || attempt === RETRIES_MAX) throw error;
      await new Promise((resolve) => setTimeout(resolve, retryAfterS * 1_000));
      signal.throwIfAborted();
    }
  }
}

async function write(sink: FileSink, { data }: AuditPage): Promise<void> {
  await sink.write(new TextEncoder().encode(data.map((entry) => `${JSON.stringify(entry)}\n`).join('')));
}

function unreadableIn({ unreadable = [] }: AuditPage): number {
  return unreadable.reduce((sum, { fromSeq, toSeq }) => sum + toSeq - fromSeq + 1, 0);
}
