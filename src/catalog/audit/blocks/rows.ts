import type { Sql } from '../../database/control-connection.ts';
import type { BlockExtent } from './block-format.ts';

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
