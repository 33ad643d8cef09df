/** Bytes waiting for a peer at which its sender is no longer read. */
export const HIGH_WATER_BYTES = 262_144;
/** Largest definition of a prepared statement that is kept, and longest text that is looked at whole. */
export const MAX_KEPT_DEFINITION_BYTES = 1_048_576;
/** Longest statement whose text can be rewritten for the `schema` placement; it has to be held whole. */
export const MAX_REWRITTEN_BYTES = 32 * 1024 * 1024;
