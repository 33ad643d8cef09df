import { isDeepStrictEqual } from 'node:util';
import { ServiceError } from '../../errors.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { Sql } from '../database/control-connection.ts';
import { entriesOf, extentOf } from './blocks/block-format.ts';
import { type BlockRow, blockColumns, toExtent } from './blocks/rows.ts';
import { type ChainHead, hashEntry } from './chain.ts';
import type { AuditEntry } from './entries/entry.ts';

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

export interface BrokenLink {
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
    from postern.organizations o left join postern.audit_heads h on h.organization_id = o.id
    where o.id = ${organizationId}`;
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
