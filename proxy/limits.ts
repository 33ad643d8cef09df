/** Bytes waiting for a peer at which its sender is no longer read. */
export const HIGH_WATER_BYTES = 262_144;
