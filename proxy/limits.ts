/** A message during login (password, SASL): enough for any credential, little enough to hold for strangers. */
export const MAX_LOGIN_MESSAGE_BYTES = 65_535;
/** Bytes waiting for a peer at which its sender is no longer read. */
export const HIGH_WATER_BYTES = 262_144;
