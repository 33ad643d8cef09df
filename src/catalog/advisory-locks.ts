/**
 * First keys of the advisory locks that processes of one control database take ('pos' and a number); the second key names
 * what is locked.
 * @see https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
 */
export const ADVISORY_LOCKS = {
  /** Migrating the schema. */
  migration: 0x706f7301,
  /** Signing up, by hash of the client's address. */
  signup: 0x706f7302,
  /** Held by a process as long as it is alive, by its number. */
  process: 0x706f7303,
  /** Counting invitations before one is added. */
  invitation: 0x706f7305,
  /** Held by the process that measures organizations. */
  diskQuotas: 0x706f7307,
  /** Writing query statistics. */
  queryStatistics: 0x706f7306,
  /** Held only to reserve space in the lock table; see lock-table/reserved-locks.ts. */
  reserved: 0x706f7304,
} as const;
