/** The largest definition of a prepared statement that is kept, and the longest text that is inspected as a whole. */
export const MAX_KEPT_DEFINITION_BYTES = 1_048_576;
/** The longest statement that can be rewritten for the `schema` placement, because it is held in memory as a whole. */
export const MAX_REWRITTEN_BYTES = 32 * 1024 * 1024;
