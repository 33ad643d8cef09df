import type { Sql } from '../../database/control-connection.ts';
import { type AuditRecord, type ChainHead, chainStart, type LinkedEntry, link } from '../chain.ts';
import { type AuditBlock, blocksOf } from './block-format.ts';

/** Gives a new organization its empty chain. */
export async function startChain(sql: Sql, organizationId: string): Promise<void> {
  const { seq, hash } = chainStart(organizationId);
  await sql`
    insert into postern.audit_heads (organization_id, seq, hash, kept_after_seq, kept_after_hash)
    values (${organizationId}, ${seq}, decode(${hash}, 'hex'), ${seq}, decode(${hash}, 'hex'))`;
}

/**
 * Appends records to their organizations' chains, within the caller's transaction. The heads stay locked until
 * it ends, so that only one writer appends to a chain at a time. They are locked in the order of ids, so that writers cannot
 * deadlock. Records of organizations without a chain are left out.
 * @param tried positions that earlier transactions gave to records, by the records' ids, where the COMMIT was not answered: records
 * found at these positions are not written again. The positions that this attempt gives are added.
 */
export async function appendToChains(sql: Sql, records: readonly AuditRecord[], tried = new Map<string, number>()): Promise<void> {
  const heads = await lockHeads(sql, records);
  const linked: LinkedEntry[] = [];
  for (const record of await unwritten(sql, records, tried)) {
    const head = heads.get(record.organizationId);
    if (head === undefined) continue;
    const next = link(head, record);
    heads.set(record.organizationId, next);
    tried.set(record.id, next.seq);
    linked.push(next);
  }
  // Sent together: where the first one fails, so does what follows in its transaction.
  await Promise.all([insertBlocks(sql, blocksOf(linked)), moveHeads(sql, heads)]);
}

async function lockHeads(sql: Sql, records: readonly AuditRecord[]): Promise<Map<string, ChainHead>> {
  const ids = [...new Set(records.map(({ organizationId }) => organizationId))];
  const heads = await sql<{ organization_id: string; seq: string; hash: string }[]>`
    select organization_id, seq, encode(hash, 'hex') as hash
    from postern.audit_heads
    where organization_id = any(${arrayOf(ids)}::text[])
    order by organization_id
    for no key update`;
  return new Map(heads.map(({ organization_id, seq, hash }) => [organization_id, { seq: Number(seq), hash }]));
}

/**
 * Leaves out the records that an earlier attempt has written. The heads must be locked, because otherwise the other transaction
 * might still commit. The block that holds a position is the first that does not end before it; written so, each look-up uses the
 * index, whatever the planner estimates.
 */
async function unwritten(sql: Sql, records: readonly AuditRecord[], tried: ReadonlyMap<string, number>): Promise<readonly AuditRecord[]> {
  if (tried.size === 0) return records;
  const doubtful = records.filter(({ id }) => tried.has(id));
  if (doubtful.length === 0) return records;
  const rows = await sql<{ id: string }[]>`
    select tried.id
    from unnest(
      ${arrayOf(doubtful.map(({ id }) => id))}::text[],
      ${arrayOf(doubtful.map(({ organizationId }) => organizationId))}::text[],
      ${arrayOf(doubtful.map(({ id }) => tried.get(id) ?? null))}::bigint[]
    ) as tried (id, organization_id, seq)
    cross join lateral (
      select entries from postern.audit_blocks b
      where b.organization_id = tried.organization_id and b.seq >= tried.seq order by b.seq limit 1
    ) block
    where strpos(block.entries, '"' || tried.id || '"') > 0`;
  const written = new Set(rows.map(({ id }) => id));
  return records.filter(({ id }) => !written.has(id));
}

/** No block's text holds an empty line. A long separator makes Postgres' search faster: it compares the last character first. */
const BETWEEN_BLOCKS = '\n'.repeat(32);

/** The blocks' texts are sent as one string: parsing a quoted array element costs more. */
async function insertBlocks(sql: Sql, blocks: readonly AuditBlock[]): Promise<void> {
  const extents = blocks.map(({ extent }) => extent);
  await sql`
    insert into postern.audit_blocks (organization_id, first_seq, prev_hash, seq, hash, first_at, last_at, request_filter, entries)
    select organization_id, first_seq, decode(prev_hash, 'hex'), seq, decode(hash, 'hex'), first_at, last_at,
      decode(request_filter, 'hex'), entries
    from unnest(
      ${arrayOf(blocks.map(({ organizationId }) => organizationId))}::text[],
      ${arrayOf(extents.map(({ firstSeq }) => firstSeq))}::bigint[],
      ${arrayOf(extents.map(({ prevHash }) => prevHash))}::text[],
      ${arrayOf(extents.map(({ seq }) => seq))}::bigint[],
      ${arrayOf(extents.map(({ hash }) => hash))}::text[],
      ${arrayOf(extents.map(({ firstAt }) => firstAt))}::timestamptz[],
      ${arrayOf(extents.map(({ lastAt }) => lastAt))}::timestamptz[],
      ${arrayOf(blocks.map(({ requestFilter }) => requestFilter.toString('hex')))}::text[],
      string_to_array(${blocks.map(({ entries }) => entries).join(BETWEEN_BLOCKS)}::text, ${BETWEEN_BLOCKS})
    ) as block (organization_id, first_seq, prev_hash, seq, hash, first_at, last_at, request_filter, entries)`;
}

async function moveHeads(sql: Sql, heads: ReadonlyMap<string, ChainHead>): Promise<void> {
  const moved = [...heads.values()];
  await sql`
    update postern.audit_heads
    set seq = moved.seq, hash = decode(moved.hash, 'hex')
    from unnest(
      ${arrayOf([...heads.keys()])}::text[], ${arrayOf(moved.map(({ seq }) => seq))}::bigint[],
      ${arrayOf(moved.map(({ hash }) => hash))}::text[]
    ) as moved (organization_id, seq, hash)
    where audit_heads.organization_id = moved.organization_id`;
}

/**
 * A JSON array is a Postgres array literal with other brackets, if no text in it needs an escape. Ids, hashes and times need none.
 * @see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
 */
function arrayOf(values: readonly (string | number | null)[]): string {
  return `{${JSON.stringify(values).slice(1, -1)}}`;
}
