/**
 * First halves of the advisory locks that processes of one control database take against each other ('pos' and a number);
 * the second half says on what.
 * @see https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
 */
export const ADVISORY_LOCKS = {
  /** Migrating the schema. */
  migration: 0x706f7301,
  /** Signing up, by hash of the client's address. */
  signup: 0x706f7302,
  /** A process being alive, by its number. */
  process: 0x706f7303,
  /** Held only for the space that they take in the lock table; see lock-table/reserved-locks.ts. */
  ballast: 0x706f7304,
} as const;
