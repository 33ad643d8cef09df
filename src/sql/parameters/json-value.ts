import type { LosslessNumber } from 'lossless-json';

/**
 * A JSON value of a request. Its numbers are {@link LosslessNumber}s (lossless-json's `parse`), so that an
 * integer beyond 2^53 keeps its digits; plain numbers are accepted too.
 */
export type JsonValue = null | boolean | number | string | LosslessNumber | readonly JsonValue[] | { readonly [key: string]: JsonValue };
