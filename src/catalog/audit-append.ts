import { type AuditParty, type AuditRecord, type ChainHead, chainStart, type LinkedRecord, link } from './audit-chain.ts';
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
 * @param tried places that records were given by transactions whose COMMIT was not answered, by the records' ids: there they
 * are looked for first. Takes up the places that this attempt gives them.
 */
export async function appendToChains(sql: Sql, records: readonly AuditRecord[], tried = new Map<string, number>()): Promise<void> {
  const heads = await lockHeads(sql, records);
  const rows = (await unwritten(sql, records, tried)).flatMap((record) => {
    const head = heads.get(record.party.organizationId);
    if (head === undefined) return [];
    const row = link(head, record);
    heads.set(record.party.organizationId, row);
    tried.set(record.id, row.seq);
    return [row];
  });
  await insertEntries(sql, rows);
  await moveHeads(sql, heads);
}

async function lockHeads(sql: Sql, records: readonly AuditRecord[]): Promise<Map<string, ChainHead>> {
  const ids = [...new Set(records.map(({ party }) => party.organizationId))];
  const heads = await sql<{ organization_id: string; seq: string; hash: string }[]>`
    select organization_id, seq, encode(hash, 'hex') as hash
    from postern.audit_heads
    where organization_id = any(${arrayOf(ids)}::text[])
    order by organization_id
    for no key update`;
  return new Map(heads.map(({ organization_id, seq, hash }) => [organization_id, { seq: Number(seq), hash }]));
}

/** Asked only with the heads locked: before that, the other transaction might still be about to commit. */
async function unwritten(sql: Sql, records: readonly AuditRecord[], tried: ReadonlyMap<string, number>): Promise<readonly AuditRecord[]> {
  const doubtful = records.filter(({ id }) => tried.has(id));
  if (doubtful.length === 0) return records;
  const rows = await sql<{ id: string }[]>`
    select id
    from unnest(
      ${arrayOf(doubtful.map(({ party }) => party.organizationId))}::text[],
      ${arrayOf(doubtful.map(({ id }) => tried.get(id) ?? null))}::bigint[]
    ) as tried (organization_id, seq)
    join postern.audit_entries using (organization_id, seq)`;
  const written = new Set(rows.map(({ id }) => id));
  return records.filter(({ id }) => !written.has(id));
}

/**
 * A column at a time, as arrays: of what an INSERT can be given, this is the cheapest to read for Postgres. What is mostly
 * the same is sent and read once, and the rows say which is theirs. Hashes, which never are, go as one value.
 */
async function insertEntries(sql: Sql, rows: readonly LinkedRecord[]): Promise<void> {
  const parties = distinct(rows.map(({ record }) => record.party));
  const party = (value: (party: AuditParty) => string | null) => arrayOf(parties.values.map(value));
  const moments = distinct(rows.map(({ record }) => record.occurredAt));
  const actions = distinct(rows.map(({ record }) => record.action));
  const statements = distinct(rows.map(({ record }) => record.statement));
  const sessions = distinct(rows.map(({ record }) => record.session));
  const outcomes = distinct(rows.map(({ record }) => record.outcome));
  await sql`
    insert into postern.audit_entries (
      organization_id, seq, id, occurred_at, action, surface, key_id, key_prefix, source_ip, user_agent, application_name,
      request_id, statement, session, outcome, prev_hash, hash)
    select
      (${party(({ organizationId }) => organizationId)}::text[])[party],
      seq,
      id,
      (${arrayOfPlain(moments.values)}::timestamptz[])[moment],
      (${arrayOf(actions.values)}::text[])[action],
      (${party(({ surface }) => surface)}::text[])[party],
      (${party(({ keyId }) => keyId)}::text[])[party],
      (${party(({ keyPrefix }) => keyPrefix)}::text[])[party],
      (${party(({ sourceIp }) => sourceIp)}::text[])[party],
      (${party(({ userAgent }) => userAgent)}::text[])[party],
      (${party(({ applicationName }) => applicationName)}::text[])[party],
      request_id,
      (${arrayOfJson(statements.values)}::jsonb[])[statement],
      (${arrayOfJson(sessions.values)}::jsonb[])[session],
      (${arrayOfJson(outcomes.values)}::jsonb[])[outcome],
      substring(${Buffer.from(rows.map(({ prevHash }) => prevHash).join(''), 'hex')}::bytea, hash_start, ${HASH_BYTES}),
      substring(${Buffer.from(rows.map(({ hash }) => hash).join(''), 'hex')}::bytea, hash_start, ${HASH_BYTES})
    from (
      select
        unnest(${arrayOfPlain(parties.places)}::int[]) as party,
        unnest(${arrayOfPlain(rows.map(({ seq }) => seq))}::bigint[]) as seq,
        unnest(${arrayOfPlain(rows.map(({ record }) => record.id))}::text[]) as id,
        unnest(${arrayOfPlain(moments.places)}::int[]) as moment,
        unnest(${arrayOfPlain(actions.places)}::int[]) as action,
        unnest(${arrayOf(rows.map(({ record }) => record.requestId))}::text[]) as request_id,
        unnest(${arrayOfPlain(statements.places)}::int[]) as statement,
        unnest(${arrayOfPlain(sessions.places)}::int[]) as session,
        unnest(${arrayOfPlain(outcomes.places)}::int[]) as outcome,
        generate_series(1, ${rows.length * HASH_BYTES}, ${HASH_BYTES}) as hash_start
    ) as entry`;
}

const HASH_BYTES = 32;

interface Distinct<T> {
  /** Each once. */
  readonly values: readonly T[];
  /** Where among them each of those given stands, from 1. */
  readonly places: readonly number[];
}

function distinct<T>(given: readonly T[]): Distinct<T> {
  const known = new Map<T, number>();
  const places = given.map((value) => {
    const place = known.get(value) ?? known.size + 1;
    if (place > known.size) known.set(value, place);
    return place;
  });
  return { values: [...known.keys()], places };
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
 * A JSON array is a Postgres array in other brackets, except for the escapes of control characters: where there may be
 * one, the strings are quoted one by one. JSON itself holds no control characters.
 * @see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
 */
function arrayOf(values: readonly (string | number | null)[]): string {
  const json = JSON.stringify(values);
  return json.includes('\\') ? `{${values.map(quoted).join(',')}}` : inBraces(json);
}

/** Of numbers, and of texts that hold nothing but letters, digits and what neither array nor JSON gives a meaning to. */
function arrayOfPlain(values: readonly (string | number)[]): string {
  return `{${values.join(',')}}`;
}

function arrayOfJson(texts: readonly (string | null)[]): string {
  return inBraces(JSON.stringify(texts));
}

function inBraces(json: string): string {
  return `{${json.slice(1, -1)}}`;
}

function quoted(value: string | number | null): string {
  return typeof value === 'string' ? `"${value.replace(/["\\]/g, '\\$&')}"` : String(value);
}
