import type { ApiKey } from '../catalog/key-rows.ts';
import type { Organization } from '../catalog/organization.ts';
import type { RoleStatements } from '../catalog/statement-counters.ts';
import { ServiceError } from '../errors.ts';

/** An authenticated organization, its key, and a signal that ends all sessions opened with that key. */
export interface Tenant {
  /**
   * The role in its placement is that of the key's sessions. There is one object for each role, so that what is kept for an
   * organization, such as prepared statements, is not shared between roles.
   */
  readonly organization: Organization;
  /** The name of its pool of backends: they are never lent to another role. */
  readonly pool: string;
  /**
   * Whose limits it counts in, at both doors: a clone's are those of its source, so that nobody gets more by cloning. A clone cannot be
   * cloned.
   */
  readonly limitsId: string;
  readonly key: Omit<ApiKey, 'verifier'>;
  /** Whether the key may be used from an address; undefined: from everywhere. */
  readonly mayComeFrom?: ((address: string) => boolean) | undefined;
  /** The prefix of its channel names in the shared database. It is secret, so that no other organization can send notifications on them. */
  readonly channels: string;
  /** The function that is called there in place of pg_notify; undefined: pg_notify itself. */
  readonly pgNotify?: string | undefined;
  /** Whether its server lets transactions be prepared. */
  readonly hasPreparedTransactions?: boolean;
  /** Counts the statements that its role runs; undefined: they are not counted. */
  readonly statements?: RoleStatements;
  /** Aborts with a ServiceError (57P01, or 28000 when suspended) when the key ends or the organization is suspended. */
  readonly revoked: AbortSignal;
}

/** @throws ServiceError `unknown_database` unless this is the database that clients of the organization connect to */
export function requireDatabase({ organization: { id } }: Tenant, database: string): void {
  if (database === id) return;
  throw new ServiceError('unknown_database', `database "${database}" does not exist`, { hint: `The database of this key is "${id}".` });
}
