import { isDeepStrictEqual } from 'node:util';
import { ServiceError } from '../../errors.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Sql } from '../control-pool.ts';
import { type BlockRow, blockColumns, entriesOf, extentOf, toExtent } from './blocks.ts';
import { type AuditEntry, type ChainHead, hashEntry, OPERATORS } from './records.ts';

const PAGE_BLOCKS = 2;
/** Shorter than the default: a verification is less urgent than queries. */
const SLICE_MS = 1;

export interface AuditVerification {
  readonly ok: boolean;
  /** The number of correct entries: all, or those before the first bad one. */
  readonly count: number;
  /** The last position, according to the chain's head. */
  readonly headSeq: number;
  readonly headHash: string;
  /** The first position at which the chain is broken. */
  readonly firstBad?: BrokenLink;
}

interface BrokenLink {
  readonly seq: number;
  /** The id of the entry that is stored there; undefined when there is none. */
  readonly id?: string;
  /** `changed`: its hash does not match its content and the previous hash. */
  readonly reason: 'missing' | 'changed' | 'not_linked' | 'head_missing' | 'head_differs';
}

/**
 * Verifies an organization's chain from the oldest kept entry to its head. Must run in one snapshot.
 * @param signal aborts when no caller waits for the answer any more
 * @throws ServiceError `not_found` when there is no such organization; the signal's reason
 */
export async function verifyChain(sql: Sql, organizationId: string, signal: AbortSignal): Promise<AuditVerification> {
  const ends = await readEnds(sql, organizationId);
  if (ends === undefined) return { ok: false, count: 0, headSeq: 0, headHash: '', firstBad: { seq: 1, reason: 'head_missing' } };
  const { start, head } = ends;
  const report = (walked: ChainHead, firstBad?: BrokenLink): AuditVerification => ({
    ok: firstBad === undefined,
    count: walked.seq - start.seq,
    headSeq: head.seq,
    headHash: head.hash,
    ...(firstBad === undefined ? {} : { firstBad }),
  });
  const slices = new TimeSlices(SLICE_MS);
  let walked = start;
  for await (const block of blocks(sql, organizationId)) {
    signal.throwIfAborted();
    const read: AuditEntry[] = [];
    try {
      for (const entry of entriesOf(block.entries, block.prev_hash)) {
        const reason = fault(walked, head, entry);
        if (reason === 'missing') return report(walked, { seq: walked.seq + 1, reason });
        if (reason !== undefined) return report(walked, { seq: entry.seq, id: entry.id, reason });
        read.push(entry);
        walked = entry;
        await slices.pause();
      }
    } catch {
      return report(walked, { seq: walked.seq + 1, reason: 'changed' });
    }
    if (Number(block.seq) > walked.seq) return report(walked, { seq: walked.seq + 1, reason: 'missing' });
    if (!isDeepStrictEqual(toExtent(block), extentOf(read))) return report(walked, { seq: walked.seq, reason: 'changed' });
  }
  if (walked.seq < head.seq) return report(walked, { seq: walked.seq + 1, reason: 'missing' });
  if (walked.hash !== head.hash) return report(walked, { seq: head.seq, reason: 'head_differs' });
  return report(walked);
}

/** What is wrong with `entry` as the successor of `before`; undefined: nothing. */
function fault(before: ChainHead, head: ChainHead, entry: AuditEntry): BrokenLink['reason'] | undefined {
  if (entry.seq > head.seq) return 'head_differs';
  if (entry.seq > before.seq + 1) return 'missing';
  if (hashEntry(entry) !== entry.hash) return 'changed';
  return entry.seq === before.seq + 1 && entry.prevHash === before.hash ? undefined : 'not_linked';
}

async function readEnds(sql: Sql, organizationId: string): Promise<{ start: ChainHead; head: ChainHead } | undefined> {
  const [row] = await sql<{ seq: string | null; hash: string; kept_after_seq: string; kept_after_hash: string }[]>`
    select h.seq, encode(h.hash, 'hex') as hash, h.kept_after_seq, encode(h.kept_after_hash, 'hex') as kept_after_hash
    from (select ${organizationId}::text as id where ${organizationId}::text = ${OPERATORS}::text or exists (
      select from postern.organizations where id = ${organizationId})) o left join postern.audit_heads h on h.organization_id = o.id`;
  if (row === undefined) throw new ServiceError('not_found', `there is no organization "${organizationId}"`);
  if (row.seq === null) return undefined;
  return {
    start: { seq: Number(row.kept_after_seq), hash: row.kept_after_hash },
    head: { seq: Number(row.seq), hash: row.hash },
  };
}

/** All blocks of the organization, a page at a time, including any with positions before the first kept entry. */
async function* blocks(sql: Sql, organizationId: string): AsyncGenerator<BlockRow> {
  let last: BlockRow | undefined;
  do {
    const page: BlockRow[] = await sql<BlockRow[]>`
      select ${blockColumns(sql)}
      from postern.audit_blocks
      where organization_id = ${organizationId} ${last === undefined ? sql`` : sql`and seq > ${last.seq}`}
      order by seq
      limit ${PAGE_BLOCKS}`;
    yield* page;
    last = page[PAGE_BLOCKS - 1];
  } while (last !== undefined);
}

/** @throws when `signal` aborts because no caller waits any more */
type Verify = (organizationId: string, signal: AbortSignal) => Promise<AuditVerification>;

/**
 * Runs verifications one at a time, because a long chain takes long, and organizations in turn. Callers who request the same
 * verification before it begins share its answer, so at most one is queued for an organization.
 */
export class VerificationQueue {
  readonly #verify: Verify;
  /** By organization, in the order of their requests. */
  readonly #waiting = new Map<string, SharedVerification>();
  #isRunning = false;

  constructor(verify: Verify) {
    this.#verify = verify;
  }

  /** @param signal aborts when the caller has disconnected */
  request(organizationId: string, signal?: AbortSignal): Promise<AuditVerification> {
    let shared = this.#waiting.get(organizationId);
    if (shared === undefined || shared.isCanceled) {
      shared = new SharedVerification();
      this.#waiting.set(organizationId, shared);
    }
    shared.addCaller(signal);
    void this.#runAll();
    return shared.answer;
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // A Map's iterator also reaches entries that are added during the loop.
    for (const [organizationId, shared] of this.#waiting) {
      this.#waiting.delete(organizationId);
      await shared.run((signal) => this.#verify(organizationId, signal));
    }
    this.#isRunning = false;
  }
}

/** One verification and the callers who wait for its answer. */
class SharedVerification {
  /** Aborts when all callers have disconnected. */
  readonly #unwanted = new AbortController();
  readonly answer: Promise<AuditVerification>;
  #resolve: (answer: AuditVerification) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #callers = 0;

  constructor() {
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get isCanceled(): boolean {
    return this.#unwanted.signal.aborted;
  }

  addCaller(signal: AbortSignal | undefined): void {
    this.#callers += 1;
    if (signal?.aborted) this.#leave();
    else signal?.addEventListener('abort', this.#leave, { once: true });
  }

  /** Never rejects. */
  async run(verify: (signal: AbortSignal) => Promise<AuditVerification>): Promise<void> {
    if (this.isCanceled) return;
    try {
      this.#resolve(await verify(this.#unwanted.signal));
    } catch (error) {
      this.#reject(error);
    }
  }

  readonly #leave = (): void => {
    this.#callers -= 1;
    if (this.#callers > 0) return;
    const gone = new ServiceError('query_canceled', 'the caller has gone away');
    this.#unwanted.abort(gone);
    this.#reject(gone);
  };
}
