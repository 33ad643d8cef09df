import type { ChainHead, LinkedEntry, PartyJson } from '../chain.ts';
import type { AuditEntry } from '../entries/entry.ts';
import { filterOf } from './bloom-filter.ts';

/** Few enough that searching a block for one entry is quick. */
const BLOCK_ENTRIES = 256;

/** Which entries a block holds. */
export interface BlockExtent extends ChainHead {
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
export interface AuditBlock {
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
export function blocksOf(entries: readonly LinkedEntry[]): AuditBlock[] {
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
