import type { JsonBuffer } from './buffer.ts';

/**
 * Writes one value as JSON, given the bytes of its Postgres text. It is not called for NULL.
 * @param source its bytes between start and end may be overwritten
 * @param end exclusive
 */
export interface ValueEncoder {
  (out: JsonBuffer, source: Uint8Array, start: number, end: number): void;
  /** The same in parts, for types whose values may be large. */
  readonly inParts?: (out: JsonBuffer, source: Uint8Array, start: number, end: number) => Parts;
}

/** Yields after each part, so that the event loop can handle other events and the written bytes can be sent. */
export type Parts = Generator<void, void>;

/** The size of a part of a value, which takes some tenths of a millisecond to write. */
export const PART_BYTES = 32_768;

/** In parts, if that is more than one. */
export function* partsOf(encode: ValueEncoder, out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
  if (encode.inParts !== undefined && end - start > PART_BYTES) yield* encode.inParts(out, source, start, end);
  else encode(out, source, start, end);
}
