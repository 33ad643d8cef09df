import { asApiError, isAbort } from '../../api/api-error.ts';
import { type FileSink, openFileSink } from '../../downloads/file-sink.ts';
import { type AuditPage, type AuditSearch, searchAudit } from './audit-calls.ts';

/** The most that the API gives in a page. */
const PAGE_ENTRIES = 1_000;
const RETRIES_MAX = 5;
const RETRY_AFTER_S = 1;

export interface Export {
  readonly filters: Omit<AuditSearch, 'limit'>;
  readonly signal: AbortSignal;
  readonly onProgress: (entries: number) => void;
}

export interface Exported {
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
