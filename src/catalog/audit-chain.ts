import { createHash } from 'node:crypto';
import type { AuditEntry, RecordedOutcome, RecordedSession, RecordedStatement } from './audit-entry.ts';

/** Where an organization's chain ends; hashes are hex. */
export interface ChainHead {
  readonly seq: number;
  readonly hash: string;
}

/** An entry before it has its place in the chain. */
export interface AuditRecord {
  readonly organizationId: string;
  readonly id: string;
  readonly occurredAt: Date;
  readonly action: string;
  readonly surface: string;
  readonly actor: { readonly keyId: string | null; readonly keyPrefix: string | null };
  readonly sourceIp: string | null;
  readonly userAgent: string | null;
  readonly applicationName: string | null;
  readonly requestId: string | null;
  readonly statement?: RecordedStatement;
  readonly session?: RecordedSession;
  readonly outcome: RecordedOutcome;
}

/**
 * The head of an organization's empty chain. Its hash is that of the organization's id, so that a chain cannot pass for
 * another organization's.
 */
export function chainStart(organizationId: string): ChainHead {
  return { seq: 0, hash: sha256(organizationId) };
}

/** The record as the entry that follows `head`. */
export function link(head: ChainHead, record: AuditRecord): AuditEntry {
  const { organizationId: _, occurredAt, ...rest } = record;
  const entry = { ...rest, seq: head.seq + 1, occurredAt: occurredAt.toISOString(), prevHash: head.hash };
  return { ...entry, hash: hashEntry(entry) };
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
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(',')}}`;
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
