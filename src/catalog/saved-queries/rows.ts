import type { Sql } from '../database/control-connection.ts';

export interface SavedQuery {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** The id of the key that changed it last. */
  readonly updatedBy: string;
}

const columns = (sql: Sql) => sql`name, sql, description, created_at as "createdAt", updated_at as "updatedAt", updated_by as "updatedBy"`;

/** In the order of their names. */
export async function listQueries(sql: Sql, organizationId: string): Promise<readonly SavedQuery[]> {
  return sql<SavedQuery[]>`select ${columns(sql)} from postern.saved_queries where organization_id = ${organizationId} order by name`;
}

export async function findQuery(sql: Sql, organizationId: string, name: string): Promise<SavedQuery | undefined> {
  const [found] = await sql<SavedQuery[]>`
    select ${columns(sql)} from postern.saved_queries where organization_id = ${organizationId} and name = ${name}`;
  return found;
}

/** What the organization's queries take, except the one of this name. */
export async function usedBy(sql: Sql, organizationId: string, exceptName: string): Promise<{ count: number; bytes: number }> {
  const [used = { count: 0, bytes: 0 }] = await sql<{ count: number; bytes: number }[]>`
    select count(*)::int as count, coalesce(sum(octet_length(sql) + octet_length(coalesce(description, ''))), 0)::int as bytes
    from postern.saved_queries where organization_id = ${organizationId} and name <> ${exceptName}`;
  return used;
}

export async function upsertQuery(
  sql: Sql,
  organizationId: string,
  query: Pick<SavedQuery, 'name' | 'sql' | 'description' | 'updatedBy'> & { readonly at: Date },
): Promise<SavedQuery> {
  const { name, sql: text, description, updatedBy, at } = query;
  const [saved] = await sql<[SavedQuery]>`
    insert into postern.saved_queries (organization_id, name, sql, description, created_at, updated_at, updated_by)
    values (${organizationId}, ${name}, ${text}, ${description}, ${at}, ${at}, ${updatedBy})
    on conflict (organization_id, name) do update set sql = excluded.sql, description = excluded.description,
      updated_at = excluded.updated_at, updated_by = excluded.updated_by
    returning ${columns(sql)}`;
  return saved;
}

export async function deleteQuery(sql: Sql, organizationId: string, name: string): Promise<void> {
  await sql`delete from postern.saved_queries where organization_id = ${organizationId} and name = ${name}`;
}

/** When the organization is dropped. */
export async function deleteQueries(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.saved_queries where organization_id = ${organizationId}`;
}
