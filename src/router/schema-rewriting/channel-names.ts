import { createHash } from 'node:crypto';

/** NAMEDATALEN - 1: LISTEN truncates longer names to this many bytes. */
const CHANNEL_MAX_BYTES = 63;

/** The prefix of an organization's channels. No other name that Postern makes contains `:`. */
export const channelPrefix = (channels: string): string => `${channels}:`;

/**
 * The name that a client's channel has on the server: the prefix and the client's name. If that is too long, the digest of the
 * client's name replaces it; {@link clientChannel} then needs `longNames`.
 */
export function serverChannel(name: string, channels: string): string {
  const prefix = channelPrefix(channels);
  const fits = prefix.length + Buffer.byteLength(name) <= CHANNEL_MAX_BYTES;
  return fits ? prefix + name : `${prefix}~${createHash('sha256').update(name).digest('base64url')}`;
}

/** Truncates a name as the server truncates identifiers: to 63 bytes, between characters. */
export function truncateChannel(name: string): string {
  const bytes = Buffer.from(name);
  if (bytes.length <= CHANNEL_MAX_BYTES) return name;
  let end = CHANNEL_MAX_BYTES;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

/**
 * The client's name for the channel of a notification; undefined if the channel is not this organization's. Such a notification
 * must never reach the client.
 * @param longNames server's name → client's, for the session's channels whose names did not fit ({@link serverChannel})
 */
export function clientChannel(name: string, channels: string, longNames?: Pick<ReadonlyMap<string, string>, 'get'>): string | undefined {
  const prefix = channelPrefix(channels);
  return name.startsWith(prefix) ? (longNames?.get(name) ?? name.slice(prefix.length)) : undefined;
}
