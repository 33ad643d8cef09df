import type { ControlDatabase } from './database.ts';
import type { Sql } from './session.ts';

const CHAINS_PER_PAGE = 1_000;
const ENTRIES_PER_TRANSACTION = 5_000;

/**
 * Deletes the entries of every chain up to the first one that is not older than `before`. The head keeps place and hash
 * of the last one deleted: there verification begins. Several processes may do this at once.
 * @returns how many were deleted
 */
export async function deleteExpired(database: ControlDatabase, before: Date): Promise<number> {
  let deleted = 0;
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: { organization_id: string; expired: boolean }[] = await database.run((sql) => pageOfChains(sql, after ?? '', before));
    for (const { organization_id: id } of page.filter(({ expired }) => expired)) {
      for (let more = true; more; ) {
        const count = await database.transaction((sql) => deleteFromChain(sql, id, before));
        deleted += count;
        more = count === ENTRIES_PER_TRANSACTION;
      }
    }
    after = page.length === CHAINS_PER_PAGE ? page.at(-1)?.organization_id : undefined;
  }
  return deleted;
}

/** Chains in the order of their ids, and whether the oldest entry of each has expired. */
async function pageOfChains(sql: Sql, after: string, before: Date): Promise<{ organization_id: string; expired: boolean }[]> {
  return sql<{ organization_id: string; expired: boolean }[]>`
    select h.organization_id, coalesce(oldest.occurred_at < ${before}, false) as expired
    from postern.audit_heads h
    left join lateral (
      select e.occurred_at from postern.audit_entries e where e.organization_id = h.organization_id order by e.seq limit 1
    ) oldest on true
    where h.organization_id > ${after}
    order by h.organization_id
    limit ${CHAINS_PER_PAGE}`;
}

async function deleteFromChain(sql: Sql, organizationId: string, before: Date): Promise<number> {
  const [head] = await sql`
    select from postern.audit_heads where organization_id = ${organizationId} for no key update skip locked`;
  if (head === undefined) return 0;
  const oldest = await sql<{ seq: string; hash: Buffer; expired: boolean }[]>`
    select seq, hash, occurred_at < ${before} as expired
    from postern.audit_entries
    where organization_id = ${organizationId}
    order by seq
    limit ${ENTRIES_PER_TRANSACTION}`;
  const firstKept = oldest.findIndex(({ expired }) => !expired);
  const last = oldest.at(firstKept < 0 ? -1 : firstKept - 1);
  if (last === undefined || firstKept === 0) return 0;
  await sql`delete from postern.audit_entries where organization_id = ${organizationId} and seq <= ${last.seq}`;
  await sql`
    update postern.audit_heads set kept_after_seq = ${last.seq}, kept_after_hash = ${last.hash}
    where organization_id = ${organizationId}`;
  return firstKept < 0 ? oldest.length : firstKept;
}
