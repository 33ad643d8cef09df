import crypto from 'node:crypto';
import type { AuditEntry } from './entries/entry.ts';

/** Where an organization's chain ends; hashes are hex. */
export interface ChainHead {
  readonly seq: number;
  readonly hash: string;
}

/**
 * What an entry's canonical JSON says of who did something, and by which way: what many entries have in common. The members
 * in the three runs in which they stand; they are of a few kinds, so that one can be known by being the same object.
 */
export interface PartyJson {
  readonly actor: string;
  readonly source: string;
  readonly surface: string;
}

/**
 * An entry before it has its place in the chain: its members as canonical JSON. A text that is put together stays a tree of
 * its pieces until somebody reads it, so most of these are pieces that many records have in common.
 */
export interface AuditRecord {
  readonly organizationId: string;
  readonly party: PartyJson;
  /** These two without the quotes around them. */
  readonly id: string;
  readonly occurredAt: string;
  readonly action: string;
  readonly requestId: string;
  /** What {@link requestId} says: entries are found by it. */
  readonly request: string | null;
  readonly statement: string | null;
  readonly session: string | null;
  readonly outcome: string;
}

/** A record in its place in the chain. */
export interface LinkedEntry extends ChainHead {
  readonly record: AuditRecord;
  readonly prevHash: string;
  readonly occurredAt: string;
}

/**
 * The head of an organization's empty chain. Its hash is that of the organization's id, so that a chain cannot pass for
 * another organization's.
 */
export function chainStart(organizationId: string): ChainHead {
  return { seq: 0, hash: sha256(organizationId) };
}

/** The record as the one that follows `head`. */
export function link(head: ChainHead, record: AuditRecord): LinkedEntry {
  const seq = head.seq + 1;
  const { occurredAt } = record;
  return { record, seq, prevHash: head.hash, occurredAt, hash: sha256(canonicalEntry(record, seq, head.hash)) };
}

/** {@link canonicalJson} of the entry without `hash`, whose names and their order are known. */
function canonicalEntry(record: AuditRecord, seq: number, prevHash: string): string {
  const { id, occurredAt, action, requestId, statement, session, outcome, party } = record;
  const counts = session === null ? party.source : `"session":${session},${party.source}`;
  const text = statement === null ? ',' : `,"statement":${statement},`;
  return (
    `{"action":${action},${party.actor},"id":"${id}","occurredAt":"${occurredAt}","outcome":${outcome},"prevHash":"${prevHash}",` +
    `"requestId":${requestId},"seq":${seq},${counts}${text}${party.surface}}`
  );
}

/** What `hash` must be: SHA-256 over the canonical JSON of everything else in the entry. */
export function hashEntry(entry: Omit<AuditEntry, 'hash'>): string {
  const { hash: _, ...hashed }: Partial<AuditEntry> = entry;
  return sha256(canonicalJson(hashed));
}

/**
 * JSON with sorted names and no white space, as in RFC 8785; absent values are left out. Of numbers only what
 * `JSON.stringify` writes the RFC's way occurs here.
 */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(',')}}`;
}

/** `crypto.hash` costs two thirds of a Hash object, and leaves less behind; Node has it from 20.12 on. */
const sha256: (text: string) => string =
  typeof crypto.hash === 'function'
    ? (text) => crypto.hash('sha256', text)
    : (text) => crypto.createHash('sha256').update(text).digest('hex');
