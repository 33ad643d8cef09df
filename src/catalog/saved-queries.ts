import { createHash } from 'node:crypto';
import { ServiceError } from '../errors.ts';
import type { Origin } from '../observation.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import type { ApiKey } from './key-rows.ts';
import { lockOrganization, type Organization } from './organization.ts';

interface NewQuery {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
}

/** Who changes something, and how the request came. */
interface QueryChange {
  readonly organization: Pick<Organization, 'id'>;
  readonly key: Pick<ApiKey, 'id' | 'prefix'>;
  readonly origin: Origin;
}

/** Called with the query as it is before a change, while nobody else can change it. Throws if it must not be changed. */
export type CheckPresent = (present: SavedQuery | undefined) => void;

const QUERIES_MAX = 500;
/** All texts of an organization together, because they are listed together. */
const TEXTS_MAX_BYTES = 2 * 1_048_576;

/** SQL texts that an organization's keys share, each with a name. Changes are committed with their audit entries. */
export class SavedQueries {
  readonly #database: ControlPool;
  readonly #audit: AuditLog;
  readonly #now: () => Date;

  constructor(options: { readonly database: ControlPool; readonly audit: AuditLog; readonly now: () => Date }) {
    this.#database = options.database;
    this.#audit = options.audit;
    this.#now = options.now;
  }

  /** By their names. */
  list(organizationId: string): Promise<readonly SavedQuery[]> {
    return this.#database.readFor(organizationId, (sql) => listQueries(sql, organizationId));
  }

  find(organizationId: string, name: string): Promise<SavedQuery | undefined> {
    return this.#database.readFor(organizationId, (sql) => findQuery(sql, organizationId, name));
  }

  /**
   * Makes a query, or replaces the one of this name.
   * @throws ServiceError `too_many_queries`, and what the check throws
   */
  save(change: QueryChange, query: NewQuery, check: CheckPresent): Promise<{ readonly saved: SavedQuery; readonly isNew: boolean }> {
    return this.#change(change, 'queries.save', `SAVE QUERY ${quoted(query.name)}`, async (sql, organizationId) => {
      const present = await findQuery(sql, organizationId, query.name);
      check(present);
      await checkRoom(sql, organizationId, query);
      const saved = await upsertQuery(sql, organizationId, { ...query, updatedBy: change.key.id, at: this.#now() });
      return { saved, isNew: present === undefined };
    });
  }

  /** @throws ServiceError `not_found`, and what the check throws */
  delete(change: QueryChange, name: string, check: CheckPresent): Promise<void> {
    return this.#change(change, 'queries.delete', `DROP QUERY ${quoted(name)}`, async (sql, organizationId) => {
      const present = await findQuery(sql, organizationId, name);
      check(present);
      if (present === undefined) throw noQuery(name);
      await deleteQuery(sql, organizationId, name);
    });
  }

  /** Changes of one organization wait for each other, so that they cannot exceed the limits together. Logins need not wait for them. */
  #change<T>(
    { organization: { id: organizationId }, key, origin }: QueryChange,
    action: string,
    text: string,
    work: (sql: Sql, organizationId: string) => Promise<T>,
  ): Promise<T> {
    return this.#database.changeFor(organizationId, async (sql) => {
      const { status } = await lockOrganization(sql, organizationId);
      if (status !== 'active') throw new ServiceError('organization_suspended', `the organization is ${status}`);
      const result = await work(sql, organizationId);
      const statement = { sql: text, command: text.split(' ', 2).join(' ') };
      const actor = { keyId: key.id, keyPrefix: key.prefix };
      await this.#audit.appendWith(sql, { organizationId, action, origin, actor, statement, outcome: DONE });
      return result;
    });
  }
}

/** Changes with every change of the query. */
export function versionOf({ name, sql, description, createdAt, updatedAt, updatedBy }: SavedQuery): string {
  return createHash('sha256')
    .update(JSON.stringify([name, sql, description, createdAt, updatedAt, updatedBy]))
    .digest('base64url');
}

export function noQuery(name: string): ServiceError {
  return new ServiceError('not_found', `there is no saved query "${name}"`);
}

async function checkRoom(sql: Sql, organizationId: string, { name, sql: text, description }: NewQuery): Promise<void> {
  const others = await usedBy(sql, organizationId, name);
  if (others.count >= QUERIES_MAX) throw new ServiceError('too_many_queries', `an organization may have ${QUERIES_MAX} saved queries`);
  if (others.bytes + Buffer.byteLength(text) + Buffer.byteLength(description ?? '') > TEXTS_MAX_BYTES) {
    throw new ServiceError('too_many_queries', `all saved queries together may have ${TEXTS_MAX_BYTES} bytes`);
  }
}

function quoted(name: string): string {
  return `'${name.replaceAll("'", "''")}'`;
}

interface SavedQuery {
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
async function listQueries(sql: Sql, organizationId: string): Promise<readonly SavedQuery[]> {
  return sql<SavedQuery[]>`select ${columns(sql)} from postern.saved_queries where organization_id = ${organizationId} order by name`;
}

async function findQuery(sql: Sql, organizationId: string, name: string): Promise<SavedQuery | undefined> {
  const [found] = await sql<SavedQuery[]>`
    select ${columns(sql)} from postern.saved_queries where organization_id = ${organizationId} and name = ${name}`;
  return found;
}

/** What the organization's queries take, except the one of this name. */
async function usedBy(sql: Sql, organizationId: string, exceptName: string): Promise<{ count: number; bytes: number }> {
  const [used = { count: 0, bytes: 0 }] = await sql<{ count: number; bytes: number }[]>`
    select count(*)::int as count, coalesce(sum(octet_length(sql) + octet_length(coalesce(description, ''))), 0)::int as bytes
    from postern.saved_queries where organization_id = ${organizationId} and name <> ${exceptName}`;
  return used;
}

async function upsertQuery(
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

async function deleteQuery(sql: Sql, organizationId: string, name: string): Promise<void> {
  await sql`delete from postern.saved_queries where organization_id = ${organizationId} and name = ${name}`;
}

/** When the organization is dropped. */
export async function deleteQueries(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.saved_queries where organization_id = ${organizationId}`;
}
