import { createHash } from 'node:crypto';
import { ServiceError } from '../../errors.ts';
import type { Origin } from '../../observation.ts';
import { DONE } from '../audit/entries/event-record.ts';
import type { AuditLog } from '../audit/log.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import type { ApiKey } from '../keys/api-key.ts';
import type { Organization } from '../organizations/organization.ts';
import { lockOrganization } from '../organizations/organization-rows.ts';
import { deleteQuery, findQuery, listQueries, type SavedQuery, upsertQuery, usedBy } from './rows.ts';

export interface NewQuery {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
}

/** Who changes something, and how the request came. */
export interface QueryChange {
  readonly organization: Pick<Organization, 'id'>;
  readonly key: Pick<ApiKey, 'id' | 'prefix'>;
  readonly origin: Origin;
}

/** Called with the query as it is before a change, while nobody else can change it. Throws if it must not be changed. */
export type CheckPresent = (present: SavedQuery | undefined) => void;

export const QUERIES_MAX = 500;
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
