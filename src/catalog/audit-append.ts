import { type AuditRecord, type ChainHead, chainStart, link } from './audit-chain.ts';
import type { AuditEntry } from './audit-entry.ts';
import type { Sql } from './session.ts';

/** Gives a new organization its empty chain. */
export async function startChain(sql: Sql, organizationId: string): Promise<void> {
  const { seq, hash } = chainStart(organizationId);
  await sql`
    insert into postern.audit_heads (organization_id, seq, hash, kept_after_seq, kept_after_hash)
    values (${organizationId}, ${seq}, decode(${hash}, 'hex'), ${seq}, decode(${hash}, 'hex'))`;
}

/**
 * Puts records at the ends of their organizations' chains, within the caller's transaction. The heads stay locked until
 * it ends: writers of one chain follow each other, in this process and in others. They are locked in the order of ids, so
 * that no two writers wait for each other. Records of organizations that have no chain are left out.
 * @param again the records may have been written already, by a transaction whose COMMIT was not answered
 */
export async function appendToChains(sql: Sql, records: readonly AuditRecord[], again = false): Promise<void> {
  const heads = await lockHeads(sql, records);
  const rows = (again ? await unwritten(sql, records) : records).flatMap((record) => {
    const head = heads.get(record.organizationId);
    if (head === undefined) return [];
    const entry = link(head, record);
    heads.set(record.organizationId, entry);
    return [{ organizationId: record.organizationId, entry }];
  });
  await insertEntries(sql, rows);
  await moveHeads(sql, heads);
}

async function lockHeads(sql: Sql, records: readonly AuditRecord[]): Promise<Map<string, ChainHead>> {
  const ids = [...new Set(records.map(({ organizationId }) => organizationId))];
  const heads = await sql<{ organization_id: string; seq: string; hash: string }[]>`
    select organization_id, seq, encode(hash, 'hex') as hash
    from postern.audit_heads
    where organization_id in (select jsonb_array_elements_text(${JSON.stringify(ids)}::text::jsonb))
    order by organization_id
    for no key update`;
  return new Map(heads.map(({ organization_id, seq, hash }) => [organization_id, { seq: Number(seq), hash }]));
}

/** Asked only with the heads locked: before that, the other transaction might still be about to commit. */
async function unwritten(sql: Sql, records: readonly AuditRecord[]): Promise<AuditRecord[]> {
  const rows = await sql<{ id: string }[]>`
    select id from postern.audit_entries
    where id in (select jsonb_array_elements_text(${JSON.stringify(records.map(({ id }) => id))}::text::jsonb))`;
  const written = new Set(rows.map(({ id }) => id));
  return records.filter(({ id }) => !written.has(id));
}

async function insertEntries(sql: Sql, rows: readonly { organizationId: string; entry: AuditEntry }[]): Promise<void> {
  const columns = rows.map(({ organizationId, entry }) => ({
    ...entry,
    ...entry.actor,
    organizationId,
  }));
  await sql`
    insert into postern.audit_entries (
      organization_id, seq, id, occurred_at, action, surface, key_id, key_prefix, source_ip, user_agent, application_name,
      request_id, statement, session, outcome, prev_hash, hash)
    select "organizationId", seq, id, "occurredAt", action, surface, "keyId", "keyPrefix", "sourceIp", "userAgent",
      "applicationName", "requestId", statement, session, outcome, decode("prevHash", 'hex'),
      decode(hash, 'hex')
    from jsonb_to_recordset(${JSON.stringify(columns)}::text::jsonb) as entry (
      "organizationId" text, seq bigint, id text, "occurredAt" timestamptz, action text, surface text, "keyId" text,
      "keyPrefix" text, "sourceIp" text, "userAgent" text, "applicationName" text, "requestId" text, statement jsonb,
      session jsonb, outcome jsonb, "prevHash" text, hash text)`;
}

async function moveHeads(sql: Sql, heads: ReadonlyMap<string, ChainHead>): Promise<void> {
  const moved = [...heads].map(([organizationId, { seq, hash }]) => ({ organizationId, seq, hash }));
  await sql`
    update postern.audit_heads
    set seq = moved.seq, hash = decode(moved.hash, 'hex')
    from jsonb_to_recordset(${JSON.stringify(moved)}::text::jsonb) as moved ("organizationId" text, seq bigint, hash text)
    where organization_id = moved."organizationId"`;
}
