import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';

const CHAINS_PER_PAGE = 1_000;
const BLOCKS_PER_TRANSACTION = 200;

/**
 * Deletes the blocks of every chain up to the first that holds an entry not older than `before`. The head records the position
 * and hash of the last deleted entry, where verification begins. Several processes may do this at the same time.
 * @returns how many entries were deleted
 */
export async function deleteExpired(database: ControlPool, before: Date): Promise<number> {
  let deleted = 0;
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: { organization_id: string; expired: boolean }[] = await database.run((sql) => pageOfChains(sql, after ?? '', before));
    for (const { organization_id: id } of page.filter(({ expired }) => expired)) {
      for (let more = true; more; ) {
        const { blocks, entries } = await database.transaction((sql) => deleteFromChain(sql, id, before));
        deleted += entries;
        more = blocks === BLOCKS_PER_TRANSACTION;
      }
    }
    after = page.length === CHAINS_PER_PAGE ? page.at(-1)?.organization_id : undefined;
  }
  return deleted;
}

/** Chains in the order of their ids, and whether the oldest block of each has expired. */
async function pageOfChains(sql: Sql, after: string, before: Date): Promise<{ organization_id: string; expired: boolean }[]> {
  return sql<{ organization_id: string; expired: boolean }[]>`
    select h.organization_id, coalesce(oldest.last_at < ${before}, false) as expired
    from postern.audit_heads h
    left join lateral (
      select b.last_at from postern.audit_blocks b where b.organization_id = h.organization_id order by b.seq limit 1
    ) oldest on true
    where h.organization_id > ${after}
    order by h.organization_id
    limit ${CHAINS_PER_PAGE}`;
}

async function deleteFromChain(sql: Sql, organizationId: string, before: Date): Promise<{ blocks: number; entries: number }> {
  const nothing = { blocks: 0, entries: 0 };
  const [head] = await sql`
    select from postern.audit_heads where organization_id = ${organizationId} for no key update skip locked`;
  if (head === undefined) return nothing;
  const oldest = await sql<{ first_seq: string; seq: string; hash: Buffer; expired: boolean }[]>`
    select first_seq, seq, hash, last_at < ${before} as expired
    from postern.audit_blocks
    where organization_id = ${organizationId}
    order by seq
    limit ${BLOCKS_PER_TRANSACTION}`;
  const firstKept = oldest.findIndex(({ expired }) => !expired);
  const expired = firstKept < 0 ? oldest : oldest.slice(0, firstKept);
  const last = expired.at(-1);
  if (last === undefined) return nothing;
  await sql`delete from postern.audit_blocks where organization_id = ${organizationId} and seq <= ${last.seq}`;
  await sql`
    update postern.audit_heads set kept_after_seq = ${last.seq}, kept_after_hash = ${last.hash}
    where organization_id = ${organizationId}`;
  const entries = expired.reduce((sum, { first_seq, seq }) => sum + Number(seq) - Number(first_seq) + 1, 0);
  return { blocks: expired.length, entries };
}
