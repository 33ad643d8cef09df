import type { LosslessNumber } from 'lossless-json';

/**
 * A JSON value as a request carries it. Numbers come as {@link LosslessNumber} (lossless-json's `parse`), so that an
 * integer beyond 2^53 keeps its digits; plain numbers are taken too.
 */
export type JsonValue = null | boolean | number | string | LosslessNumber | readonly JsonValue[] | { readonly [key: string]: JsonValue };
