import type { Sql } from '../control-pool.ts';
import { type AuditEntry, type AuditRecord, type ChainHead, chainStart, type LinkedEntry, link, type PartyJson } from './records.ts';

/** Few enough that searching a block for one entry is quick. */
const BLOCK_ENTRIES = 256;

/** Which entries a block holds. */
interface BlockExtent extends ChainHead {
  readonly firstSeq: number;
  /** Hash of the entry before the first one. */
  readonly prevHash: string;
  /** The times of the earliest and the latest entry. */
  readonly firstAt: string;
  readonly lastAt: string;
}

/**
 * Consecutive entries of one chain, as they are stored. They are written far more often than read, and never
 * changed. With a row and index entries for each, writing them cost the server several times as much.
 */
interface AuditBlock {
  readonly organizationId: string;
  readonly extent: BlockExtent;
  /** A line of JSON for each entry; see {@link StoredEntry}. */
  readonly entries: string;
  /** See {@link filterOf}. */
  readonly requestFilter: Buffer;
}

/** A value that many entries share is written at its first occurrence; later entries have its number among those written, from 0. */
type Stored<T> = T | number;

/** An entry without `prevHash`, which is the hash of the entry before it. */
type StoredEntry = readonly [
  hash: string,
  seq: number,
  id: string,
  occurredAt: string,
  action: string,
  requestId: string | null,
  party: Stored<Pick<AuditEntry, 'actor' | 'applicationName' | 'sourceIp' | 'surface' | 'userAgent'>>,
  statement: Stored<NonNullable<AuditEntry['statement']>> | null,
  session: NonNullable<AuditEntry['session']> | null,
  outcome: AuditEntry['outcome'],
];

/** @param entries of any organizations; those of each one are in the order of its chain */
function blocksOf(entries: readonly LinkedEntry[]): AuditBlock[] {
  const chains = new Map<string, LinkedEntry[]>();
  for (const entry of entries) {
    const { organizationId } = entry.record;
    const chain = chains.get(organizationId);
    if (chain === undefined) chains.set(organizationId, [entry]);
    else chain.push(entry);
  }
  const blocks: AuditBlock[] = [];
  for (const [organizationId, chain] of chains) {
    for (let at = 0; at < chain.length; at += BLOCK_ENTRIES) {
      const block = chain.slice(at, at + BLOCK_ENTRIES);
      blocks.push({ organizationId, extent: extentOf(block), entries: linesOf(block), requestFilter: filterOf(requestsOf(block)) });
    }
  }
  return blocks;
}

type ChainPosition = Pick<AuditEntry, 'seq' | 'hash' | 'prevHash' | 'occurredAt'>;

/** @param entries at least one */
export function extentOf(entries: readonly ChainPosition[]): BlockExtent {
  const [first, last] = [entries[0], entries.at(-1)];
  if (first === undefined || last === undefined) throw new Error('a block of no entries');
  let firstAt = first.occurredAt;
  let lastAt = firstAt;
  for (const { occurredAt } of entries) {
    if (occurredAt < firstAt) firstAt = occurredAt;
    if (occurredAt > lastAt) lastAt = occurredAt;
  }
  return { firstSeq: first.seq, prevHash: first.prevHash, seq: last.seq, hash: last.hash, firstAt, lastAt };
}

function requestsOf(block: readonly LinkedEntry[]): string[] {
  const requests: string[] = [];
  for (const { record } of block) if (record.request !== null) requests.push(record.request);
  return requests;
}

function linesOf(block: readonly LinkedEntry[]): string {
  const parties = new Numbers<PartyJson>(({ actor, source, surface }) => `{${actor},${source},${surface}}`);
  const statements = new Numbers<string>((statement) => statement);
  let lines = '';
  for (const { hash, seq, record } of block) {
    const { id, occurredAt, action, requestId, party, statement, session, outcome } = record;
    lines +=
      `${lines === '' ? '' : '\n'}["${hash}",${seq},"${id}","${occurredAt}",${action},${requestId},${parties.of(party)},` +
      `${statement === null ? 'null' : statements.of(statement)},${session},${outcome}]`;
  }
  return lines;
}

/** Returns a value's text the first time, and its number from then on. */
class Numbers<T> {
  readonly #known = new Map<T, number>();
  readonly #textOf: (value: T) => string;
  /** Kept because the same value is often used several times in a row. */
  #last: { readonly value: T; readonly number: number } | undefined;

  constructor(textOf: (value: T) => string) {
    this.#textOf = textOf;
  }

  of(value: T): string | number {
    if (this.#last?.value === value) return this.#last.number;
    const number = this.#known.get(value);
    this.#last = { value, number: number ?? this.#known.size };
    if (number !== undefined) return number;
    this.#known.set(value, this.#last.number);
    return this.#textOf(value);
  }
}

/**
 * Reads the entries that {@link blocksOf} has written.
 * @param prevHash the hash of the entry before the first one
 * @throws when a line is malformed
 */
export function* entriesOf(lines: string, prevHash: string): Generator<AuditEntry> {
  const parties: (StoredEntry[6] & object)[] = [];
  const statements: (StoredEntry[7] & object)[] = [];
  let before = prevHash;
  for (const line of lines.split('\n')) {
    const [hash, seq, id, occurredAt, action, requestId, storedParty, storedStatement, session, outcome] = JSON.parse(line) as StoredEntry;
    const { actor, applicationName, sourceIp, surface, userAgent } = recall(parties, storedParty);
    const statement = storedStatement === null ? null : recall(statements, storedStatement);
    yield {
      id,
      seq,
      occurredAt,
      action,
      surface,
      actor,
      sourceIp,
      userAgent,
      applicationName,
      requestId,
      ...(statement === null ? {} : { statement }),
      ...(session === null ? {} : { session }),
      outcome,
      prevHash: before,
      hash,
    };
    before = hash;
  }
}

function recall<T extends object>(known: T[], stored: Stored<T>): T {
  if (typeof stored === 'object') {
    known.push(stored);
    return stored;
  }
  const value = known[stored];
  if (value === undefined) throw new Error('an entry refers to a value that does not exist');
  return value;
}

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

/** Bits of the filter for each id. */
const BITS = 8;
const PROBES = 4;

/**
 * Which request ids occur in a block, as a Bloom filter. Its false positives make a search read one block in forty in vain.
 * @see https://en.wikipedia.org/wiki/Bloom_filter
 */
export function filterOf(requestIds: readonly string[]): Buffer {
  const filter = Buffer.alloc(Math.max(1, (requestIds.length * BITS) / 8));
  const bits = 8 * filter.length;
  for (const id of requestIds) {
    // The same bits as of `probesOf`, computed with small integers.
    const [first, step] = hashesOf(id);
    const ahead = step % bits;
    for (let i = 0, bit = first % bits; i < PROBES; i++, bit = (bit + ahead) % bits) {
      filter[bit >> 3] = (filter[bit >> 3] ?? 0) | (1 << (bit & 7));
    }
  }
  return filter;
}

/** The numbers of the bits that are set for an id, each modulo the length of the filter, in the order of `get_bit`. */
export function probesOf(requestId: string): number[] {
  const [first, step] = hashesOf(requestId);
  return Array.from({ length: PROBES }, (_, i) => first + i * step);
}

function hashesOf(requestId: string): readonly [first: number, step: number] {
  const first = fnv1a(requestId, 0x811c9dc5);
  return [first, fnv1a(requestId, first)];
}

/** FNV-1a of 32 bits, over UTF-16 units. @see http://www.isthe.com/chongo/tech/comp/fnv/ */
function fnv1a(text: string, basis: number): number {
  let hash = basis;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** A row of `postern.audit_blocks` as {@link blockColumns} reads it. */
export interface BlockRow {
  readonly first_seq: string;
  readonly prev_hash: string;
  readonly seq: string;
  readonly hash: string;
  readonly first_at: Date;
  readonly last_at: Date;
  readonly entries: string;
}

export const blockColumns = (sql: Sql) => sql`
  first_seq, encode(prev_hash, 'hex') as prev_hash, seq, encode(hash, 'hex') as hash, first_at, last_at, entries`;

/** `toJSON` makes null of the timestamp `infinity`, for which `toISOString` would throw. */
export function toExtent({ first_seq, prev_hash, seq, hash, first_at, last_at }: BlockRow): BlockExtent {
  return {
    firstSeq: Number(first_seq),
    prevHash: prev_hash,
    seq: Number(seq),
    hash,
    firstAt: first_at.toJSON(),
    lastAt: last_at.toJSON(),
  };
}
